"""Checks of arguments at the border: each error names the value, what is allowed and the mend.

Those of numbers take Python and NumPy numbers and 0-dimensional eager tensors. A symbolic tensor
(inside a graph) has no value yet and passes. Nothing here imports TensorFlow.
"""

import math
import numbers
from collections.abc import Callable
from typing import Any


def at_least_zero(name: str, value: Any, mend: str) -> Any:
  """Checks 0 <= value < infinity.

  Args:
    name: The argument's name, for the message.
    value: The number, or a scalar tensor.
    mend: What to give instead, e.g. 'give a rate such as 0.1'.

  Returns:
    The number: an eager tensor as a Python number, for graphs cannot take it.

  Raises:
    TypeError: If `value` is no number.
    ValueError: If it is out of the range.
  """
  number = _number(name, value, mend)
  if number is not None and not 0 <= number < math.inf:
    raise ValueError(f'{name} must be finite and at least 0, found {number}: {mend}.')
  return value if number is None else number


def above_zero(name: str, value: Any, mend: str) -> Any:
  """Checks 0 < value < infinity; as `at_least_zero` otherwise."""
  number = _number(name, value, mend)
  if number is not None and not 0 < number < math.inf:
    raise ValueError(f'{name} must be finite and above 0, found {number}: {mend}.')
  return value if number is None else number


def in_unit_interval(name: str, value: Any, mend: str) -> Any:
  """Checks 0 <= value < 1; as `at_least_zero` otherwise."""
  number = _number(name, value, mend)
  if number is not None and not 0 <= number < 1:
    raise ValueError(f'{name} must be in [0, 1), found {number}: {mend}.')
  return value if number is None else number


def up_to_one(name: str, value: Any, mend: str) -> Any:
  """Checks 0 <= value <= 1; as `at_least_zero` otherwise."""
  number = _number(name, value, mend)
  if number is not None and not 0 <= number <= 1:
    raise ValueError(f'{name} must be in [0, 1], found {number}: {mend}.')
  return value if number is None else number


def field(owner: Any, name: str, check: Callable[[str, Any, str], Any], mend: str) -> None:
  """Checks a field of a frozen dataclass with one of the above, and keeps what it returns."""
  object.__setattr__(owner, name, check(name, getattr(owner, name), mend))


def instance(name: str, value: Any, kind: type, kind_name: str, mend: str) -> None:
  """Checks that a value is an object of a class.

  Args:
    name: The argument's name, for the message.
    value: The object.
    kind: The class.
    kind_name: The class's public name.
    mend: What to give instead.

  Raises:
    TypeError: If it is not.
  """
  if not isinstance(value, kind):
    raise TypeError(f'{name} must be a {kind_name}, found {value!r}: {mend}.')


def whole_number(name: str, value: Any, low: int, mend: str) -> None:
  """Checks that a value is an integer >= low; no tensors.

  Args:
    name: The argument's name, for the message.
    value: A Python or NumPy integer.
    low: The least value allowed.
    mend: What to give instead.

  Raises:
    TypeError: If `value` is no integer.
    ValueError: If it is below `low`.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Integral):
    raise TypeError(f'{name} must be a whole number, found {value!r}: {mend}.')
  if value < low:
    raise ValueError(f'{name} must be at least {low}, found {value}: {mend}.')


def _number(name: str, value: Any, mend: str) -> Any:
  """Returns the value as a number, or None for a tensor that has none yet."""
  if hasattr(value, 'numpy'):  # An eager tensor.
    array = value.numpy()
    value = array.tolist() if hasattr(array, 'tolist') else array
  elif hasattr(value, 'tolist') and not isinstance(value, numbers.Real):  # An array.
    value = value.tolist()
  elif hasattr(value, 'graph'):  # A symbolic tensor.
    return None
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'{name} must be a number, found {value!r}: {mend}.')
  return value
