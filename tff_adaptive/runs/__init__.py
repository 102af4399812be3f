"""Runs on disk: their config, metrics, checkpoints and summary."""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
