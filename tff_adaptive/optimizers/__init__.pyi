from .adaptive import (
  build_adagrad as build_adagrad,
  build_adam as build_adam,
  build_sgdm as build_sgdm,
  build_yogi as build_yogi,
)
from .base import PerCoordinate as PerCoordinate
