"""Availability, speed and failures of clients, on a virtual clock. Pure NumPy.

The modules determine which clients a round can draw, how many local steps each takes, when it
finishes, and whose updates count. `training` then trains these clients.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
