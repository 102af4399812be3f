"""A task of a user's own file: loaded, and what is wrong with it said in one line."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive._utils import user_code
from tff_adaptive_tasks import errors, task_options

if typing.TYPE_CHECKING:
  from tff_adaptive_tasks import task as task_lib

_SIGNATURE = 'function (data_dir, seed, **options) -> tasks.Task'


def load(
  reference: str, data_dir: str | None, seed: int, options: Mapping[str, Any]
) -> 'task_lib.Task':
  """Loads a task from a user's file.

  Args:
    reference: 'FILE.py:FUNCTION'.
    data_dir: Given to the function.
    seed: Given to the function.
    options: The function's other arguments.

  Returns:
    The task; its `build_model` also checks that the model fits the task's data.

  Raises:
    DataError: If there is no such function, it fails, or gives something else than a task.
  """
  try:
    function, source = user_code.load(reference)
  except ValueError as error:
    raise errors.DataError(str(error)) from error
  where = f'{source.name} of {source.path!r}'
  if not callable(function):
    raise errors.DataError(f'{where} is no {_SIGNATURE}.')
  options = _call(where, task_options.checked, reference, function, options)
  task = _call(where, function, data_dir=data_dir, seed=seed, **options)
  from tff_adaptive_tasks import task as task_lib

  if not isinstance(task, task_lib.Task):
    raise errors.DataError(f'{where} gave {task!r:.80}; it must return a tasks.Task.')
  _check_ids(where, task)
  build = functools.partial(_build_model, where, task)
  return dataclasses.replace(task, build_model=build)


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


def _check_ids(where: str, task: 'task_lib.Task') -> None:
  from tff_adaptive_tasks import task as task_lib

  ids = _call(where, lambda: list(task.train.client_ids))
  if not ids or not all(isinstance(client_id, str) for client_id in ids):
    raise errors.DataError(f'{where}: client_ids must be texts, at least one; found {ids!r:.80}.')
  task_lib.check_ids(ids, where)


def _build_model(where: str, task: 'task_lib.Task', seed: int) -> Any:
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
  from tff_adaptive_tasks import own_models, task as task_lib

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
  x = examples['x']
  if x.size:
    own_models.check_tokens(model, float(x.min()), float(x.max()), f'{whose}: ')
