"""Learning problems split over clients, by name.

    import tasks
    task = tasks.load('digits')

Importing this package imports no TensorFlow; loading a task does.
"""

import importlib
import inspect
import typing
from typing import Any, Optional

from tasks import catalog
from tasks.errors import DataError

_LAZY = {
  'ClientData': 'task',
  'InMemoryClientData': 'task',
  'SqlClientData': 'sources',
  'Task': 'task',
  'example_arrays': 'task',
}

__all__ = [
  'ClientData',
  'DataError',
  'InMemoryClientData',
  'SqlClientData',
  'Task',
  'example_arrays',
  'load',
  'names',
]

names = catalog.names


def load(name: str, data_dir: Optional[str] = None, seed: int = 0, **options: Any):
  """Loads a task.

  Args:
    name: One of `names()`.
    data_dir: The folder with the task's files; None means what the task comes with or a download.
    seed: Seeds what is random in the data, such as a partition over clients. It is not the seed
      of the initial weights, which `Task.build_model` takes.
    **options: The task's own options, described at the loader that `catalog` names.

  Returns:
    A `tasks.Task`.

  Raises:
    DataError: If the name or an option is unknown or the data cannot be used.
  """
  if name not in catalog.TASKS:
    raise DataError(f'unknown task {name!r}; choose one of: {", ".join(names())}')
  module, _, function = catalog.TASKS[name].loader.partition('.')
  loader = getattr(importlib.import_module(f'tasks.{module}'), function)
  parameters = inspect.signature(loader).parameters
  known = set(parameters) - {'name', 'data_dir', 'seed'}
  if set(options) - known:
    raise DataError(
      f'the task {name!r} has no option {", ".join(sorted(set(options) - known))}; it has: '
      f'{", ".join(sorted(known)) or "none"}'
    )
  checked = {k: _checked(name, k, v, parameters[k].annotation) for k, v in options.items()}
  return loader(name, data_dir=data_dir, seed=seed, **checked)


_KINDS = {bool: 'true or false', int: 'a whole number', float: 'a number', str: 'a word'}


def _checked(task: str, option: str, value: Any, annotation: Any) -> Any:
  """The value as its annotation, T or Optional[T], has it; 'none' stands for None."""
  kind, *optional = typing.get_args(annotation) or (annotation,)
  if optional and (value is None or str(value).lower() == 'none'):
    return None
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  if kind is int and is_number and float(value).is_integer():
    return int(value)
  if kind is float and is_number and value == value:
    return float(value)
  if kind in (bool, str) and isinstance(value, kind):
    return value
  raise DataError(
    f'the option {option} of the task {task!r} is {value!r}; it must be {_KINDS[kind]}'
    + (' or none' if optional else '')
  )


def __getattr__(name: str):
  if name in _LAZY:
    return getattr(importlib.import_module(f'tasks.{_LAZY[name]}'), name)
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
