"""Loads tasks: from the catalogue, from a user's own file, or the task of a run."""

import dataclasses
import functools
import importlib
import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive import runs
from tff_adaptive._utils import option_values, suggestions, user_code, user_files
from tff_adaptive_tasks import (
  catalog,
  client_split,
  division as division_lib,
  errors,
  options as options_lib,
  task as task_lib,
)

_NEEDED = ('task', 'task_option', 'data_dir', 'seed')  # Settings that say how a task is loaded.


def load(name: str, data_dir: str | None = None, seed: int = 0, **options: Any) -> task_lib.Task:
  """Loads a task.

  Args:
    name: One of `names()`, or 'FILE.py:FUNCTION' for a user's own function `(data_dir, seed,
      **options) -> tasks.Task`. The `build_model` of such a task also checks that the model fits
      the data.
    data_dir: The folder with the task's files. None if the task needs none or can download them.
    seed: The seed of random choices in the data, such as the partition. The seed of the initial
      weights is an argument of `Task.build_model`.
    **options: The task's own options. The loader, which `catalog` names, describes them. With
      `partition`, one of `tasks.partition.NAMES`, the training examples are divided over other
      clients; then the arguments of that partitioner are options too, with `num_clients` for
      `num_partitions`, and so is `feature_noise`.

  Raises:
    DataError: If the name or an option is unknown, the data cannot be used, or a user's function
      fails or does not return a task.
  """
  # A user's file may have a function of any name, so that it cannot be in the catalogue.
  if user_code.is_reference(name):
    # It is loaded here because its arguments decide who divides the clients.
    function, source = _own_function(name)
    load_with = functools.partial(_load_own, name, function, source, data_dir, seed)
    return _load_divided(name, seed, function, load_with, options)
  if name not in catalog.TASKS:
    raise errors.DataError(suggestions.unknown('task', name, catalog.names()))
  module, _, loader_name = catalog.TASKS[name].loader.partition('.')
  loader = getattr(importlib.import_module(f'tff_adaptive_tasks.{module}'), loader_name)
  load_with = functools.partial(_load_built_in, loader, name, data_dir, seed)
  return _load_divided(name, seed, loader, load_with, options)


def _load_divided(
  name: str,
  seed: int,
  loader: Callable[..., Any],
  load_with: Callable[[dict[str, Any]], task_lib.Task],
  options: dict[str, Any],
) -> task_lib.Task:
  """Loads a task, and divides it anew if the options say so and it has no such option itself."""
  if 'partition' not in options or 'partition' in inspect.signature(loader).parameters:
    return load_with(options)
  division, of_task = division_lib.from_options(name, seed, options)
  return division_lib.divide(load_with(of_task), division)


def _load_built_in(
  loader: Callable[..., Any],
  name: str,
  data_dir: str | None,
  seed: int,
  options: dict[str, Any],
) -> task_lib.Task:
  # A loader names only those of the general arguments that it needs.
  general = {'name': name, 'data_dir': data_dir, 'seed': seed}
  takes = inspect.signature(loader).parameters
  arguments = {key: value for key, value in general.items() if key in takes}
  return loader(**arguments, **options_lib.checked(f'task {name!r}', loader, options))


def load_run(folder: str) -> runs.Run:
  """Loads a run whose task is in the catalogue or in a user's file.

  Args:
    folder: The run's folder.

  Returns:
    A `tff_adaptive.runs.Run` whose `task()` and `evaluate()` load the run's task. If the user's
    file is gone or has changed, they use the copy in the run's folder, with a warning.

  Raises:
    ValueError: If the folder is not that of a run, or the run has no rounds yet.
  """
  # Whole, because a program may change its folder before it asks for the task.
  whole = os.path.abspath(os.path.expanduser(folder))
  return runs.load_run(folder, functools.partial(task_of, folder=whole))


def task_of(config: Mapping[str, Any], folder: str) -> task_lib.Task:
  """Loads the task of a run, with the clients and examples that it trained on.

  Args:
    config: The contents of the run's config.json.
    folder: The run's folder, which may have a copy of the task's file.

  Raises:
    DataError: If the config names no known task, the task's file was changed and the folder has no
      copy of it, its data folder is missing, or a number of clients or examples has changed. Other
      changes are not noticed.
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
  name = _reference_as_used(settings['task'], config, folder)
  task = load(name, data_dir=settings['data_dir'], seed=settings['seed'], **options)
  if settings.get('metric') is not None:
    from tff_adaptive_tasks import own_metrics  # It loads TensorFlow.

    task = own_metrics.with_metric(task, settings['metric'])
  # The same draw as in the run, so that the same clients and examples train.
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
  numbers = {
    'clients': len(ids),
    'pooled_clients': num_task_clients,
    'examples': sum(map(task.train.num_examples, ids)),
    'validation_examples': len(task.validation['y']),
    'unseen_clients': len(parts.unseen or ()),
  }
  for what, number in numbers.items():
    # Runs of older versions recorded fewer numbers.
    if what in expected and expected[what] != number:
      raise errors.DataError(
        f'the data have changed since the run: {what} was {expected[what]} and is now {number};'
        ' give the former data'
      )
  return task


def _reference_as_used(name: str, config: Mapping[str, Any], folder: str) -> str:
  """Returns the name of a run's task, with the path of its file or of the run's copy.

  Warns of a copy. Raises DataError if there is neither the file as it was nor a copy.
  """
  entry = config.get('files', {}).get('task')
  if entry is None:
    return name
  function = name.rpartition(':')[2]
  try:
    file = user_files.as_used(folder, 'task', entry, function)
  except ValueError as error:
    raise errors.DataError(f'the file of the task: {error}') from error
  if file.change:
    warnings.warn(
      f'{entry["path"]!r}, the file of the task, {file.change}: the copy {file.path!r} is used',
      stacklevel=1,
    )
  return f'{file.path}:{function}'


def _own_function(reference: str) -> tuple[Callable[..., Any], Any]:
  """Returns a user's function and where it is from. Raises DataError if there is none."""
  try:
    return user_code.load(reference)
  except ValueError as error:
    raise errors.DataError(str(error)) from error


def _load_own(
  reference: str,
  function: Callable[..., Any],
  source: Any,
  data_dir: str | None,
  seed: int,
  options: Mapping[str, Any],
) -> task_lib.Task:
  where = f'{source.name} of {source.path!r}'
  # Annotations are evaluated, and may fail as any code of the user.
  checked = _call(where, options_lib.checked, f'task {reference!r}', function, options)
  task = _call(where, function, data_dir=data_dir, seed=seed, **checked)
  if not isinstance(task, task_lib.Task):
    raise errors.DataError(f'{where} gave {task!r:.80}; it must return a tasks.Task.')
  ids = _call(where, lambda: list(task.train.client_ids))
  if not ids or not all(isinstance(client_id, str) for client_id in ids):
    raise errors.DataError(f'{where}: client_ids must be strings, at least one; found {ids!r:.80}.')
  task_lib.check_ids(ids, where)
  # Whether model and data fit is checked when the model is built: that needs TensorFlow.
  return dataclasses.replace(task, build_model=functools.partial(_build_model, where, task))


def _call(where: str, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Any:
  """Calls a user's function, and turns any error into a DataError with `where` and the line."""
  try:
    return function(*arguments, **options)
  except (errors.DataError, KeyboardInterrupt):
    raise
  except BaseException as error:
    at = user_code.place(error)
    line = ''
    if at is not None:
      line = f' in line {at.line}'
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
  # One client stands for all: loading every client could take hours.
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
      shape = ', '.join(str(n or 'n') for n in spec.shape.as_list())
      raise errors.DataError(
        f"{whose}: {name} is {array.dtype} of shape {array.shape}; the model's {name}_spec needs"
        f' {spec.dtype.name} of shape ({shape}).'
      )
  task_lib.check_finite(examples, whose)
