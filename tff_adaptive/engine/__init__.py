"""Runs TFF computations as one TensorFlow graph, on a Ray cluster, or in TFF's runtime."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
