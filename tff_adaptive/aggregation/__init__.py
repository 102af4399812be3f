"""How the server combines updates: aggregators by name, and the privacy that noise gives."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
