"""Loads a task: one of the catalogue, or a user's own, with what is wrong with it in one line."""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive._utils import suggestions, user_code
from tff_adaptive_tasks import catalog, errors, task as task_lib, task_options

_SIGNATURE = 'function (data_dir, seed, **options) -> tasks.Task'


def load(name: str, data_dir: str | None = None, seed: int = 0, **options: Any) -> task_lib.Task:
  """Loads a task.

  Args:
    name: One of `names()`; or 'FILE.py:FUNCTION', a user's own function `(data_dir, seed,
      **options) -> tasks.Task`. The `build_model` of its task also checks that the model fits the
      task's data.
    data_dir: The folder with the task's files; None means what the task comes with or a download.
    seed: Seeds what is random in the data, such as a partition over clients. It is not the seed
      of the initial weights, which `Task.build_model` takes.
    **options: The task's own options, described at the loader that `catalog` names.

  Returns:
    The task.

  Raises:
    DataError: If the name or an option is unknown, the data cannot be used, or a user's function
      fails or gives something else than a task.
  """
  if user_code.is_reference(name):
    return _load_own(name, data_dir, seed, options)
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


def _load_own(
  reference: str, data_dir: str | None, seed: int, options: Mapping[str, Any]
) -> task_lib.Task:
  try:
    function, source = user_code.load(reference)
  except ValueError as error:
    raise errors.DataError(str(error)) from error
  where = f'{source.name} of {source.path!r}'
  if not callable(function):
    raise errors.DataError(f'{where} is no {_SIGNATURE}.')
  options = _call(where, task_options.checked, reference, function, options)
  task = _call(where, function, data_dir=data_dir, seed=seed, **options)
  if not isinstance(task, task_lib.Task):
    raise errors.DataError(f'{where} gave {task!r:.80}; it must return a tasks.Task.')
  ids = _call(where, lambda: list(task.train.client_ids))
  if not ids or not all(isinstance(client_id, str) for client_id in ids):
    raise errors.DataError(f'{where}: client_ids must be texts, at least one; found {ids!r:.80}.')
  task_lib.check_ids(ids, where)
  return dataclasses.replace(task, build_model=functools.partial(_build_model, where, task))


def _call(where: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
  """Calls the user's code; whatever it raises is a DataError that says where."""
  try:
    return function(*arguments, **options)
  except (errors.DataError, KeyboardInterrupt):
    raise
  except BaseException as error:
    at = user_code.place(error)
    line = f' in line {at.line}' if at is not None else ''
    raise errors.DataError(f'{where} failed{line}: {user_code.in_words(error)}') from error


def _build_model(where: str, task: task_lib.Task, seed: int) -> Any:
  """The task's model; DataError if it is none or its specs do not fit the data."""
  from tff_adaptive import models

  model = _call(where, task.build_model, seed)
  if not isinstance(model, models.Model):
    raise errors.DataError(
      f'{where}: build_model gave {type(model).__name__}; it must return a'
      ' tff_adaptive.models.Model; models.from_keras makes one of a Keras model.'
    )
  if task.metric not in model.metric_names:
    raise errors.DataError(
      f'{where}: the metric of the task is {task.metric!r}, but the model has'
      f' {", ".join(model.metric_names)}; give Task(metric=...) one of these.'
    )
  first = task.train.client_ids[0]
  _call(where, lambda: task.train.num_examples(first))
  examples = _call(where, task.train.load, first)
  for whose, arrays in ((f'client {first!r}', examples), ('the validation data', task.validation)):
    _check_fits(f'{where}: {whose}', arrays, model)
  return model


def _check_fits(whose: str, arrays: Any, model: Any) -> None:
  """Refuses arrays that are no x and y of the model's specs, or not finite."""
  from tff_adaptive_tasks import own_models

  if not isinstance(arrays, Mapping) or not {'x', 'y'} <= set(arrays):
    raise errors.DataError(
      f'{whose} must be OrderedDict(x=array, y=array), found a {type(arrays).__name__}.'
    )
  examples = task_lib.example_arrays(arrays['x'], arrays['y'], whose)
  for name, array in examples.items():
    spec = model.input_spec[name]
    if array.dtype != spec.dtype.as_numpy_dtype or not spec.shape.is_compatible_with(array.shape):
      shape = ', '.join('n' if n is None else str(n) for n in spec.shape.as_list())
      raise errors.DataError(
        f"{whose}: {name} is {array.dtype} of shape {array.shape}; the model's {name}_spec wants"
        f' {spec.dtype.name} of shape ({shape}).'
      )
  task_lib.check_finite(examples, whose)
  if examples['x'].size:
    own_models.check_tokens(model, examples['x'], f'{whose}: ')
