"""A run: the round loop, cohorts, state store, checkpoints and logs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
