"""Asynchronous training: the server takes a step without waiting for all of its clients.

`Buffered` has the settings. The same object goes into `TrainingConfig(asynchrony=...)`, by which
a run simulates which clients arrive when, and into the argument `asynchrony` of the builders of
processes, whose clients then begin with the models that they received.
"""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
