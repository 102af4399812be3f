from .adaptive import (
  build_adagrad as build_adagrad,
  build_adam as build_adam,
  build_sgdm as build_sgdm,
  build_yogi as build_yogi,
)
from .base import At as At, Formula as Formula, build as build, option as option
from .per_coordinate import PerCoordinate as PerCoordinate
from .published import (
  build_adamw as build_adamw,
  build_amsgrad as build_amsgrad,
  build_lamb as build_lamb,
  build_lion as build_lion,
  build_muon as build_muon,
  build_nesterov as build_nesterov,
  build_sgd as build_sgd,
)
