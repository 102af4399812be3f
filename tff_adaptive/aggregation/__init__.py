"""Aggregators, which combine the clients' updates at the server, and their privacy accounting."""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
