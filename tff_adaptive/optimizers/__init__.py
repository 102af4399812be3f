"""The server optimizers of Algorithm 2, and other server and client optimizers, for TFF."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
