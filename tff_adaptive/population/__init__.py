"""Availability, speed and failures of clients, on a virtual clock. Pure NumPy.

The modules say which clients a round can draw, what each of them finishes and when, and which of
them count. `training` then trains those that count.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
