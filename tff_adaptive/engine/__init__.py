"""Runs TFF computations as one TensorFlow graph, on a Ray cluster, or in TFF's runtime."""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
