"""Loads tasks: from the catalogue, from a user's own file, or the task of a run."""

import dataclasses
import functools
import importlib
import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive import runs
from tff_adaptive._utils import option_values, suggestions, user_code
from tff_adaptive_tasks import catalog, client_split, errors, task as task_lib

_GIVEN = ('name', 'data_dir', 'seed')  # Arguments of a loader that are not its options.
_NEEDED = ('task', 'task_option', 'data_dir', 'seed')  # Settings that say how a task is loaded.
_KINDS = {
  bool: 'true or false',
  int: 'a whole number',
  float: 'a number',
  str: 'a string',
  types.NoneType: 'none',
}


def load(name: str, data_dir: str | None = None, seed: int = 0, **options: Any) -> task_lib.Task:
  """Loads a task.

  Args:
    name: One of `names()`, or 'FILE.py:FUNCTION' for a user's own function `(data_dir, seed,
      **options) -> tasks.Task`. The `build_model` of such a task also checks that the model fits
      the data.
    data_dir: The folder with the task's files. None if the task needs none or can download them.
    seed: The seed of random choices in the data, such as the partition. The seed of the initial
      weights is an argument of `Task.build_model`.
    **options: The task's own options. The loader, which `catalog` names, describes them.

  Raises:
    DataError: If the name or an option is unknown, the data cannot be used, or a user's function
      fails or does not return a task.
  """
  if user_code.is_reference(name):
    return _load_own(name, data_dir, seed, options)
  if name not in catalog.TASKS:
    raise errors.DataError(suggestions.unknown('task', name, catalog.names()))
  module, _, function = catalog.TASKS[name].loader.partition('.')
  loader = getattr(importlib.import_module(f'tff_adaptive_tasks.{module}'), function)
  takes = inspect.signature(loader).parameters
  return loader(
    **{k: v for k, v in zip(_GIVEN, (name, data_dir, seed)) if k in takes},
    **checked_options(name, loader, options),
  )


def load_run(folder: str) -> runs.Run:
  """Loads a run whose task is in the catalogue or in a user's file.

  Args:
    folder: The run's folder.

  Returns:
    A `tff_adaptive.runs.Run` whose `task()` and `evaluate()` load the run's task.

  Raises:
    ValueError: If the folder is not that of a run, or the run has no rounds yet.
  """
  return runs.load_run(folder, task_of)


def task_of(config: Mapping[str, Any]) -> task_lib.Task:
  """Loads the task of a run, with the clients and examples that it trained on.

  Args:
    config: The contents of the run's config.json.

  Raises:
    DataError: If the config names no known task, the task's file was changed, its data folder is
      missing, or a number of clients or examples has changed. Other changes are not noticed.
  """
  settings = config['settings']
  missing = [name for name in _NEEDED if name not in settings]
  if missing:  # A program may record any settings for its run.
    raise errors.DataError(
      f'the run was made by a program and its config.json names no {missing[0]}: give '
      'tff_adaptive.load_run(folder, load_task=lambda config: my_task)'
    )
  pairs = (pair.partition('=') for pair in settings['task_option'])
  options = {name: option_values.value(text) for name, _, text in pairs}
  name, file = settings['task'], config.get('files', {}).get('task')
  if file is not None:
    name = f'{file["path"]}:{name.rpartition(":")[2]}'
    source = user_code.load(name)[1]
    if source.sha256 != file['sha256']:
      raise errors.DataError(f'the file of the task, {file["path"]!r}, was changed since the run')
    if dict(source.modules) != file.get('modules', dict(source.modules)):
      raise errors.DataError(
        f'a module that the file of the task, {file["path"]!r}, imports was changed since the run'
      )
  task = load(name, data_dir=settings['data_dir'], seed=settings['seed'], **options)
  if settings.get('metric') is not None:
    from tff_adaptive_tasks import own_metrics  # It loads TensorFlow.

    task = own_metrics.with_metric(task, settings['metric'])
  parts = client_split.split_clients(
    task.train,
    seed=settings['seed'],
    heldout_clients=settings.get('heldout_clients') or 0.0,
    heldout_examples=settings.get('heldout_examples') or 0.0,
    unit_starts=task.unit_starts,
  )
  task = dataclasses.replace(task, train=parts.train)
  expected = config['data']
  num_task_clients = len(task.train.client_ids)
  if 'pooled_clients' in expected:  # One client had the examples of all.
    most = settings.get('max_examples_per_client') or 0
    task = dataclasses.replace(task, train=task_lib.PooledClients(task.train, most))
  ids = task.train.client_ids
  found = {
    'clients': len(ids),
    'pooled_clients': num_task_clients,
    'examples': sum(map(task.train.num_examples, ids)),
    'validation_examples': len(task.validation['y']),
    'unseen_clients': 0 if parts.unseen is None else len(parts.unseen),
  }
  for what, number in found.items():
    if what in expected and expected[what] != number:
      raise errors.DataError(
        f'the data have changed since the run: {what} was {expected[what]} and is now {number};'
        ' give the former data'
      )
  return task


def _load_own(
  reference: str, data_dir: str | None, seed: int, options: Mapping[str, Any]
) -> task_lib.Task:
  try:
    function, source = user_code.load(reference)
  except ValueError as error:
    raise errors.DataError(str(error)) from error
  where = f'{source.name} of {source.path!r}'
  options = _call(where, checked_options, reference, function, options)
  task = _call(where, function, data_dir=data_dir, seed=seed, **options)
  if not isinstance(task, task_lib.Task):
    raise errors.DataError(f'{where} gave {task!r:.80}; it must return a tasks.Task.')
  ids = _call(where, lambda: list(task.train.client_ids))
  if not ids or not all(isinstance(client_id, str) for client_id in ids):
    raise errors.DataError(f'{where}: client_ids must be strings, at least one; found {ids!r:.80}.')
  task_lib.check_ids(ids, where)
  return dataclasses.replace(task, build_model=functools.partial(_build_model, where, task))


def checked_options(
  name: str, loader: Callable[..., Any], options: Mapping[str, Any]
) -> dict[str, Any]:
  """Converts options by a loader's annotations. An unknown or wrong option raises DataError."""
  parameters = inspect.signature(loader, eval_str=True).parameters.values()
  several = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
  known = {
    p.name: p.annotation for p in parameters if p.kind not in several and p.name not in _GIVEN
  }
  unknown = sorted(set(options) - set(known))
  if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
    raise errors.DataError(
      f'the task {name!r} has no option {", ".join(unknown)}; it has: '
      f'{", ".join(sorted(known)) or "none"}'
    )
  return {
    option: _converted(f'the option {option} of the task {name!r}', value, known.get(option, Any))
    for option, value in options.items()
  }


def _converted(what: str, value: Any, annotation: Any) -> Any:
  """Converts a value to its annotation (type, union, Literal of strings) or raises DataError."""
  if annotation is inspect.Parameter.empty or annotation is Any:
    return value
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
    if kind is int and is_number and abs(value) < 2**63 and value == int(value):
      return int(value)
    if kind is float and is_number and (abs(value) < 1e300 or abs(value) == math.inf):
      return float(value)
    if kind in (bool, str) and isinstance(value, kind):
      return value
  raise errors.DataError(f'{what} is {value!r}; it must be ' + ' or '.join(allowed))


def _kinds(annotation: Any) -> list[Any]:
  """Returns the types of a union, the texts of a Literal, or else the annotation itself."""
  if typing.get_origin(annotation) not in (typing.Union, types.UnionType, typing.Literal):
    return [annotation]
  return [kind for part in typing.get_args(annotation) for kind in _kinds(part)]


def _call(where: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
  """Calls a user's function, and turns any error into a DataError with `where` and the line."""
  try:
    return function(*arguments, **options)
  except (errors.DataError, KeyboardInterrupt):
    raise
  except BaseException as error:
    at = user_code.place(error)
    line = f' in line {at.line}' if at is not None else ''
    raise errors.DataError(f'{where} failed{line}: {user_code.in_words(error)}') from error


def _build_model(where: str, task: task_lib.Task, seed: int) -> Any:
  """Builds the task's model. Raises DataError if it is not a `Model` or does not fit the data."""
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
    _call(where, _check_fits, f'{where}: {whose}', arrays, model)
  return model


def _check_fits(whose: str, arrays: Any, model: Any) -> None:
  """Raises DataError if x or y does not match the model's specs or is not finite."""
  examples = task_lib.example_arrays(arrays['x'], arrays['y'], whose)
  for name, array in examples.items():
    spec = model.input_spec[name]
    if array.dtype != spec.dtype.as_numpy_dtype or not spec.shape.is_compatible_with(array.shape):
      shape = ', '.join('n' if n is None else str(n) for n in spec.shape.as_list())
      raise errors.DataError(
        f"{whose}: {name} is {array.dtype} of shape {array.shape}; the model's {name}_spec needs"
        f' {spec.dtype.name} of shape ({shape}).'
      )
  task_lib.check_finite(examples, whose)
