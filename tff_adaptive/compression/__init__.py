"""Compressors of a vector as pure functions, and the bits of what they send."""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
