from .bits import (
  codes as codes,
  indices as indices,
  ternary_digits as ternary_digits,
)
from .quantizers import (
  qsgd as qsgd,
  qsgd_variance as qsgd_variance,
  rounded as rounded,
  sign as sign,
  ternary as ternary,
  uniform as uniform,
)
from .selection import largest as largest, num_kept as num_kept
