"""Who is there, how fast, and for how long: clients as they are, on a virtual clock.

Pure NumPy: which clients a round can draw, when each hands in what, and what the server makes of
it. `training` trains on those that count.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
