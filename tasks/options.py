"""Checks the options of a task against the annotations of what takes them."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_adaptive_tasks import errors

_GIVEN = ('name', 'data_dir', 'seed')  # Arguments of a loader that are not its options.
_KINDS = {
  bool: 'true or false',
  int: 'a whole number',
  float: 'a number',
  str: 'a string',
  types.NoneType: 'none',
}


def checked(
  what: str,
  takes: Callable[..., Any],
  options: Mapping[str, Any],
  reserved: Sequence[str] = _GIVEN,
) -> dict[str, Any]:
  """Returns options converted by the annotations of a function or class.

  Args:
    what: What has the options, for messages, such as "task 'digits'".
    takes: The function or class.
    options: Values by name.
    reserved: Arguments that are no options.

  Raises:
    DataError: If an option is unknown or its value has the wrong type.
  """
  parameters = inspect.signature(takes, eval_str=True).parameters.values()
  several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
  named = [p for p in parameters if p.kind not in several]
  annotations = {p.name: p.annotation for p in named if p.name not in reserved}
  # A user's function with **options checks them itself.
  takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
  unknown = sorted(set(options) - set(annotations))
  if unknown and not takes_any:
    raise errors.DataError(
      f'the {what} has no option {", ".join(unknown)}; it has: '
      f'{", ".join(sorted(annotations)) or "none"}'
    )
  return {
    name: converted(f'the option {name} of the {what}', value, annotations.get(name, Any))
    for name, value in options.items()
  }


def converted(what: str, value: Any, annotation: Any) -> Any:
  """Converts a value to its annotation (type, union, Literal of strings) or raises DataError."""
  if annotation is inspect.Parameter.empty or annotation is Any:
    return value
  # bool is a subclass of int, but true is no number of clients.
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  allowed: list[str] = []
  for kind in _kinds(annotation):
    if isinstance(kind, str):  # Of a Literal.
      allowed.append(repr(kind))
      if value == kind:
        return value
      continue
    allowed.append(_KINDS.get(kind, f'a {kind}'))
    if kind is types.NoneType and str(value).lower() == 'none':
      return None
    # A command line may say 1e3; NumPy's integers end at 2**63.
    if kind is int and is_number and abs(value) < 2**63 and value == int(value):
      return int(value)
    # Infinity may be meant, other numbers near the limit overflow later.
    if kind is float and is_number and (abs(value) < 1e300 or abs(value) == math.inf):
      return float(value)
    if kind in (bool, str) and isinstance(value, kind):
      return value
  raise errors.DataError(f'{what} is {value!r}; it must be ' + ' or '.join(allowed))


def _kinds(annotation: Any) -> list[Any]:
  """Returns the types of a union, the texts of a Literal, or else the annotation itself."""
  if typing.get_origin(annotation) not in (typing.Union, types.UnionType, typing.Literal):
    return [annotation]
  kinds = []
  for part in typing.get_args(annotation):
    kinds += _kinds(part)
  return kinds
