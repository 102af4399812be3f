"""Loads a task: one of the catalogue, or a user's own from a file."""

import importlib
import inspect
import math
import traceback
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tasks import catalog, errors
from tff_adaptive._utils import suggestions, user_code

if typing.TYPE_CHECKING:
  from tasks import task as task_lib

_KINDS = {bool: 'true or false', int: 'a whole number', float: 'a number', str: 'a word'}


def load(name: str, data_dir: str | None = None, seed: int = 0, **options: Any) -> 'task_lib.Task':
  """Loads a task.

  Args:
    name: One of `names()`; or 'FILE.py:FUNCTION', a user's own function `(data_dir, seed,
      **options) -> tasks.Task`.
    data_dir: The folder with the task's files; None means what the task comes with or a download.
    seed: Seeds what is random in the data, such as a partition over clients. It is not the seed
      of the initial weights, which `Task.build_model` takes.
    **options: The task's own options, described at the loader that `catalog` names.

  Returns:
    The task.

  Raises:
    DataError: If the name or an option is unknown or the data cannot be used.
  """
  if user_code.is_reference(name):
    return _load_own(name, data_dir, seed, options)
  if name not in catalog.TASKS:
    raise errors.DataError(suggestions.unknown('task', name, catalog.names()))
  module, _, function = catalog.TASKS[name].loader.partition('.')
  loader = getattr(importlib.import_module(f'tasks.{module}'), function)
  return loader(name, data_dir=data_dir, seed=seed, **_checked_options(name, loader, options))


def _load_own(
  reference: str, data_dir: str | None, seed: int, options: Mapping[str, Any]
) -> 'task_lib.Task':
  """Loads a task from a user's file; what goes wrong in it is a DataError that says where."""
  try:
    function, source = user_code.load(reference)
  except ValueError as error:
    raise errors.DataError(str(error)) from error
  where = f'{source.name} of {source.path!r}'
  if not callable(function):
    raise errors.DataError(f'{where} is no function (data_dir, seed, **options) -> tasks.Task.')
  try:
    checked = _checked_options(reference, function, options)
    task = function(data_dir=data_dir, seed=seed, **checked)
  except errors.DataError:
    raise
  except Exception as error:  # Whatever the user's code raises.
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == source[0]]
    line = f' in line {lines[-1]}' if lines else ''
    raise errors.DataError(f'{where} failed{line}: {type(error).__name__}: {error}') from error
  from tasks import task as task_lib

  if not isinstance(task, task_lib.Task):
    raise errors.DataError(f'{where} gave {task!r:.80}; it must return a tasks.Task.')
  return task


def _checked_options(
  name: str, loader: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the options as the loader's annotations have them."""
  parameters = inspect.signature(loader, eval_str=True).parameters
  if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
    open_ended = {option: value for option, value in options.items() if option not in parameters}
  else:
    open_ended = {}
  known = set(parameters) - {'name', 'data_dir', 'seed'}
  unknown = set(options) - known - set(open_ended)
  if unknown:
    raise errors.DataError(
      f'the task {name!r} has no option {", ".join(sorted(unknown))}; it has: '
      f'{", ".join(sorted(known)) or "none"}'
    )
  checked = {
    option: _checked(name, option, value, parameters[option].annotation)
    for option, value in options.items()
    if option not in open_ended
  }
  return {**checked, **open_ended}


def _checked(task: str, option: str, value: Any, annotation: Any) -> Any:
  """The value as its annotation, T or T | None, has it; 'none' stands for None."""
  if annotation is inspect.Parameter.empty:
    return value
  kind, *optional = typing.get_args(annotation) or (annotation,)
  if optional and (value is None or str(value).lower() == 'none'):
    return None
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if kind is int and is_number and abs(value) < 2**63 and value == int(value):
    return int(value)
  if kind is float and is_number and (abs(value) < 1e300 or abs(value) == math.inf):
    return float(value)
  if kind in (bool, str) and isinstance(value, kind):
    return value
  raise errors.DataError(
    f'the option {option} of the task {task!r} is {value!r}; it must be '
    + _KINDS.get(kind, f'a {getattr(kind, "__name__", kind)}')
    + (' or none' if optional else '')
  )
