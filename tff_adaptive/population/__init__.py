"""Simulates availability, speed and failures of clients on a virtual clock, in NumPy alone.

The modules determine which clients a round can draw, how many local steps each client takes, when
it finishes, and whether its update counts. `training` then trains the clients that count.
"""

from tff_adaptive._utils import lazy_names

__getattr__, __dir__, __all__ = lazy_names.attach(__name__, __file__)
