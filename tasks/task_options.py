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
  parameters = inspect.signature(loader, eval_str=True).parameters
  kinds = {parameter.kind for parameter in parameters.values()}
  known = {
    name
    for name, parameter in parameters.items()
    if parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
  } - {'name', 'data_dir', 'seed'}
  unknown = set(options) - known
  if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
    raise errors.DataError(
      f'the task {name!r} has no option {", ".join(sorted(unknown))}; it has: '
      f'{", ".join(sorted(known)) or "none"}'
    )
  return {
    option: value
    if option in unknown
    else _converted(name, option, value, parameters[option].annotation)
    for option, value in options.items()
  }


def _converted(task: str, option: str, value: Any, annotation: Any) -> Any:
  """The value as its annotation has it: a type, a union of types or a Literal of texts."""
  if annotation is inspect.Parameter.empty or annotation is Any:
    return value
  kinds = [annotation]
  if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
    kinds = list(typing.get_args(annotation))
  allowed: list[str] = []
  for kind in kinds:
    choices = typing.get_args(kind) if typing.get_origin(kind) is typing.Literal else ()
    found = value if value in choices else _as_kind(value, kind)
    if found is not None or (kind is types.NoneType and _is_none(value)):
      return found
    allowed += map(repr, choices) if choices else [_KINDS.get(kind, f'a {_name(kind)}')]
  raise errors.DataError(
    f'the option {option} of the task {task!r} is {value!r}; it must be ' + ' or '.join(allowed)
  )


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


def _is_none(value: Any) -> bool:
  return value is None or str(value).lower() == 'none'


def _name(kind: Any) -> str:
  return getattr(kind, '__name__', str(kind))
