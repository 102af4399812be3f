"""Local training: a client's batches and its local steps."""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
