from .settings import Buffered as Buffered
from .simulation import Arrivals as Arrivals
