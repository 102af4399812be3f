"""Loads a task: one of the catalogue, or a user's own from a file."""

import importlib
import inspect
import typing
from typing import Any

from tff_adaptive._utils import suggestions, user_code
from tff_adaptive_tasks import catalog, errors, own_task, task_options

if typing.TYPE_CHECKING:
  from tff_adaptive_tasks import task as task_lib


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
    return own_task.load(name, data_dir, seed, options)
  if name not in catalog.TASKS:
    raise errors.DataError(suggestions.unknown('task', name, catalog.names()))
  module, _, function = catalog.TASKS[name].loader.partition('.')
  loader = getattr(importlib.import_module(f'tff_adaptive_tasks.{module}'), function)
  given = {'name': name, 'data_dir': data_dir, 'seed': seed}
  takes = inspect.signature(loader).parameters
  return loader(
    **{key: value for key, value in given.items() if key in takes},
    **task_options.checked(name, loader, options),
  )
