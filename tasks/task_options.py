"""The options of a task, as the annotations of its loader have them."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive_tasks import errors

_KINDS = {
  bool: 'true or false',
  int: 'a whole number',
  float: 'a number',
  str: 'a word',
  types.NoneType: 'none',
}


def checked(name: str, loader: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the options as the loader's annotations have them.

  Args:
    name: The task's name, for messages.
    loader: The function whose arguments the options are.
    options: Name -> value.

  Raises:
    DataError: If an option is unknown or of another kind.
  """
  parameters = dict(inspect.signature(loader, eval_str=True).parameters)
  takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
  known = {
    name: parameter.annotation
    for name, parameter in parameters.items()
    if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    and name not in ('name', 'data_dir', 'seed')
  }
  unknown = sorted(set(options) - set(known))
  if unknown and not takes_any:
    raise errors.DataError(
      f'the task {name!r} has no option {", ".join(unknown)}; it has: '
      f'{", ".join(sorted(known)) or "none"}'
    )
  return {
    option: _converted(f'the option {option} of the task {name!r}', value, known.get(option, Any))
    for option, value in options.items()
  }


def _converted(what: str, value: Any, annotation: Any) -> Any:
  """The value as its annotation has it: a type, a union of types or a Literal of texts."""
  if annotation is inspect.Parameter.empty or annotation is Any:
    return value
  is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
  allowed: list[str] = []
  for kind in typing.get_args(annotation) if is_union else [annotation]:
    choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    if kind is types.NoneType and str(value).lower() == 'none':
      return None
    found = value if value in choices else _as_kind(value, kind)
    if found is not None:
      return found
    allowed += [repr(c) for c in choices] or [_KINDS.get(kind, f'a {kind}')]
  raise errors.DataError(f'{what} is {value!r}; it must be ' + ' or '.join(allowed))


def _as_kind(value: Any, kind: Any) -> Any:
  """The value as a kind of value; None if it is none."""
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if kind is int and is_number and abs(value) < 2**63 and value == int(value):
    return int(value)
  if kind is float and is_number and (abs(value) < 1e300 or abs(value) == math.inf):
    return float(value)
  if kind in (bool, str) and isinstance(value, kind):
    return value
  return None
