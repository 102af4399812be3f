"""Checks arguments. Each error names the value, what is allowed, and how to fix it.

Checks of numbers accept Python and NumPy numbers. Numbers that float32 cannot hold, or would round
to zero, and integers beyond int64 are refused. Nothing here imports TensorFlow.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any

from tff_adaptive._utils import value_text

Check = Callable[[str, Any, str], Any]

_FLOAT32_MAX = (2 - 2**-23) * 2.0**127
_FLOAT32_MIN = 2.0**-126  # TensorFlow's kernels replace smaller numbers by zero.
_INT64_MAX = 2**63 - 1


def _ranged(allowed: str, is_allowed: Callable[[Any], bool]) -> Check:
  """Builds a check that a number is finite and in a range.

  The check takes the argument's name, its value and a hint such as 'give a rate such as 0.1'. It
  returns the number. It raises TypeError if the value is not a number, and ValueError if it is out
  of the range.
  """

  def check(name: str, value: Any, hint: str) -> Any:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number:
      raise TypeError(f'{name} must be a number, found {value_text.in_text(value)}: {hint}.')
    # Python can compare an integer of any size with infinity, but not convert it to float.
    if not -math.inf < value < math.inf or not is_allowed(value):
      raise ValueError(f'{name} must be {allowed}, found {_shown(value)}: {hint}.')
    if value != 0 and not _FLOAT32_MIN <= abs(value) <= _FLOAT32_MAX:
      raise ValueError(
        f'{name} must be a number that float32 can hold, 1.2e-38 to 3.4e38, found'
        f' {_shown(value)}: {hint}.'
      )
    return value

  return check


real = _ranged('finite', lambda number: True)
at_least_zero = _ranged('finite and at least 0', lambda number: number >= 0)
above_zero = _ranged('finite and above 0', lambda number: number > 0)
at_least_one = _ranged('finite and at least 1', lambda number: number >= 1)
in_unit_interval = _ranged('in [0, 1)', lambda number: 0 <= number < 1)
in_half_open_unit_interval = _ranged('in (0, 1]', lambda number: 0 < number <= 1)
up_to_one = _ranged('in [0, 1]', lambda number: 0 <= number <= 1)


def field(owner: Any, name: str, check: Check, hint: str) -> None:
  """Checks a field of a frozen dataclass and stores the result of the check."""
  object.__setattr__(owner, name, check(name, getattr(owner, name), hint))


def instance(name: str, value: Any, kind: type, hint: str) -> None:
  """Raises TypeError unless a value is an instance of a class."""
  if not isinstance(value, kind):
    raise TypeError(
      f'{name} must be of the class {kind.__name__}, found {value_text.in_text(value)}: {hint}.'
    )


def whole_number(name: str, value: Any, low: int, hint: str, high: int = _INT64_MAX) -> Any:
  """Returns `value` if it is an integer in [low, high]. Raises TypeError or ValueError if not."""
  is_number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
  if not is_number:
    raise TypeError(f'{name} must be a whole number, found {value_text.in_text(value)}: {hint}.')
  if value < low:
    raise ValueError(f'{name} must be at least {low}, found {value}: {hint}.')
  if value > high:
    raise ValueError(f'{name} must be at most {high}, found {_shown(value)}: {hint}.')
  return value


def _whole_from(low: int) -> Check:
  return lambda name, value, hint: whole_number(name, value, low, hint)


whole = _whole_from(0)
count = _whole_from(1)


def _shown(number: Any) -> str:
  """Formats a number for an error message; Python refuses to print very long integers."""
  if isinstance(number, numbers.Integral) and abs(int(number)) >= 2**128:
    return f'an integer of {int(number).bit_length()} bits'
  return str(number)
