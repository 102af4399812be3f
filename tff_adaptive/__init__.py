"""Adaptive federated optimization on TensorFlow Federated.

A federated optimizer consists of a client optimizer, a client correction, an aggregation, a server
optimizer and a schedule. The public names are listed in `__init__.pyi`. They are loaded at their
first use, so that importing this package imports neither TensorFlow nor TFF.

    import tff_adaptive

    process = tff_adaptive.build_fed_yogi(
      model_fn, client_learning_rate=0.03, server_learning_rate=0.003)

See README.md and docs/guide for a tour.
"""

from tff_adaptive._utils import lazy_names
from tff_adaptive._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
