from .adaptive import (
  build_adagrad as build_adagrad,
)
from .adaptive import (
  build_adam as build_adam,
)
from .adaptive import (
  build_sgdm as build_sgdm,
)
from .adaptive import (
  build_yogi as build_yogi,
)
from .base import (
  PerCoordinate as PerCoordinate,
)
