"""Trains a run for a program: what `tff_adaptive.fit` does with train.py's settings."""

import contextlib
import functools
import numbers
import operator
import os
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive._utils import private_apis
from tff_adaptive_tasks import errors, task as task_lib

from . import command, flag_names, flags, options, repeat, resolve, run, tensorflow_start

# What is of no use without a folder: it only says what is written there, or how it is read.
_OF_FOLDERS = ('ledger', 'full_ledger', 'trace_client', 'resume_from', 'accept_lost_rows')
# How a task is loaded that is given by its name.
_OF_NAMES = ('task_option', 'data_dir')
# Kinds of dtypes whose targets may be joined.
_KINDS = {'b': 'classes', 'i': 'classes', 'u': 'classes', 'U': 'texts', 'O': 'texts'}
# What the value of an option may be in a program.
_OF_OPTIONS = (str, os.PathLike, numbers.Real, np.bool_)
_SEED = 0  # The default of the flag.


class Run(NamedTuple):
  """A run that was trained: its `training.TrainingResult`, the task and the task's model."""

  result: Any
  task: Any
  model: Any


def fit(task: Any, algorithm: str | None, folder: str | None, keywords: Mapping[str, Any]) -> Run:
  """Trains a run; see `tff_adaptive.fit`. The folder None stands for no files."""
  with _without_dashes():
    given = _given({'algorithm': algorithm, **keywords, 'output_dir': folder})
    if folder is None:
      _refuse_flags_of_folders(given)
    if isinstance(task, (str, os.PathLike)):
      given['task'] = os.fspath(task)
      task = None
    if 'check_ray' in given:
      raise ValueError('check_ray is for the command line: it trains nothing.')
    given = repeat.with_config(given)
    if task is not None and 'config' in given:
      raise ValueError('config repeats a run with its own task: leave out the task.')
    if task is not None:
      task = _as_task(task, given)
      given['task'] = task.name
    settings = resolve.resolve(given, task_object=task, writes=folder is not None)
  # Here, so that it is imported as usual: a command imports it in its own way.
  with tensorflow_start.without_notes():
    import tensorflow_federated  # noqa: F401

  with _context_comes_back(), _failures_of_the_library(), _without_dashes():
    outcome = run.run(
      settings, ['tff_adaptive.fit', *flags.command_line(given)], is_of_command=False
    )
  try:
    run.check_result(outcome.result)
  except command.DivergedError as error:
    # The command's exit code says it; here the result may still be of use.
    warnings.warn(_as_keywords(str(error)), RuntimeWarning, stacklevel=3)
  return Run(outcome.result, outcome.task, outcome.model)


def _given(keywords: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values of flags by name, in the types that a command line gives them."""
  table = {flag.name: flag for flag in flags.table()}
  given = {}
  for name, value in keywords.items():
    if name not in table:
      names = flag_names.meant(name, table)
      hint = 'see the help of train.py'
      if names:
        hint = f'did you mean {" or ".join(names)}?'
      raise TypeError(f'fit() has no keyword {name!r}: {hint}')
    if value is not None:
      given[name] = _CONVERTERS[table[name].kind](name, value)
  return given


def _text(name: str, value: Any) -> str:
  if isinstance(value, (str, os.PathLike)):
    return os.fspath(value)
  raise ValueError(f'{name} must be a text, found {value!r:.80}.')


def _whole_number(name: str, value: Any) -> int:
  if not isinstance(value, (bool, np.bool_)):
    with contextlib.suppress(TypeError):
      return operator.index(value)
  raise ValueError(f'{name} must be a whole number, found {value!r:.80}.')


def _number(name: str, value: Any) -> float:
  if not isinstance(value, bool) and isinstance(value, numbers.Real):
    return float(value)
  raise ValueError(f'{name} must be a number, found {value!r:.80}.')


def _truth(name: str, value: Any) -> bool:
  if isinstance(value, (bool, np.bool_)):
    return bool(value)
  raise ValueError(f'{name} must be True or False, found {value!r:.80}.')


def _texts(name: str, value: Any) -> list[str]:
  """Returns the values of a flag that may be repeated: one text, several, or options by name."""
  if isinstance(value, Mapping):
    for key, option in value.items():
      # Others would reach their reader as the text that Python prints for them.
      if option is not None and not isinstance(option, _OF_OPTIONS):
        raise ValueError(
          f'{name}: {key} must be a truth value, a number or a text, found {option!r:.80}.'
        )
    return list(options.pairs(value))
  if isinstance(value, str):
    return [value]
  if isinstance(value, Sequence) and all(isinstance(text, str) for text in value):
    return list(value)
  raise ValueError(f'{name} must be a list of texts, or a mapping, found {value!r:.80}.')


_CONVERTERS: Mapping[type, Callable[[str, Any], Any]] = {
  str: _text,
  int: _whole_number,
  float: _number,
  bool: _truth,
  list: _texts,
}


def _as_task(task: Any, given: Mapping[str, Any]) -> task_lib.Task:
  """Returns a task that was not given by its name. Raises ValueError if it is none."""
  seed = given.get('seed', _SEED)
  if _is_function(task):
    loaded = task(
      data_dir=command.expanded(given.get('data_dir')),
      seed=seed,
      **options.parse('task_option', given.get('task_option', ())),
    )
    if not isinstance(loaded, task_lib.Task):
      name = getattr(task, '__name__', type(task).__name__)
      raise ValueError(f'{name} gave {loaded!r:.80}; it must return a tasks.Task.')
    return loaded
  for name in _OF_NAMES:
    if name in given:
      raise ValueError(f'{name} is for a task that is given by its name, or by a function.')
  if isinstance(task, task_lib.Task):
    return task
  if isinstance(task, Mapping):
    return _of_arrays(task, seed)
  hint = 'give the name of a task, a tasks.Task, a function that returns one, or {client: (x, y)}'
  if hasattr(task, 'columns'):
    hint = 'give tff_adaptive_tasks.from_frame(table, client=COLUMN, label=COLUMN)'
  raise ValueError(f'a {type(task).__name__} is no task: {hint}.')


def _is_function(task: Any) -> bool:
  """Returns whether this is a function, a method, or one with some arguments given."""
  return isinstance(task, (types.FunctionType, types.MethodType, functools.partial))


def _of_arrays(examples: Mapping[Any, Any], seed: int) -> task_lib.Task:
  """Returns the task of own data, arrays (x, y) by client."""
  import tff_adaptive_tasks as tasks

  inputs = []
  targets = []
  owners: list[Any] = []
  for client, pair in examples.items():
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
      raise errors.DataError(f'the client {client!r} must have two arrays (x, y).')
    x, y = (np.asarray(array) for array in pair)
    if not x.ndim or not y.ndim or len(x) != len(y):
      raise errors.DataError(
        f'the client {client!r} has x of shape {x.shape} and y of shape {y.shape}: give one target'
        ' for every input.'
      )
    if not len(x):  # It has no examples, and an empty list would be one of floating-point numbers.
      continue
    inputs.append(x)
    targets.append(y)
    owners += [client] * len(x)
  if not inputs:
    raise errors.DataError('there are no clients with examples: give arrays (x, y) by client.')
  _check_one_kind(owners, targets)
  try:
    x = np.concatenate(inputs)
    y = np.concatenate(targets)
  except ValueError as error:
    raise errors.DataError(f'the arrays of the clients do not go together: {error}.') from None
  return tasks.from_arrays(x, y, owners, seed=seed)


def _check_one_kind(owners: Sequence[Any], targets: Sequence[np.ndarray]) -> None:
  """Raises DataError if targets are classes for some clients and numbers for others.

  One array of all would be of numbers, or of texts, without a word.
  """
  clients = list(dict.fromkeys(owners))
  kinds = [_KINDS.get(y.dtype.kind, y.dtype.kind) for y in targets]
  for client, kind, y in zip(clients, kinds, targets):
    if kind != kinds[0]:
      raise errors.DataError(
        f'the targets of the client {clients[0]!r} have dtype {targets[0].dtype}, those of'
        f' {client!r} {y.dtype}: give all whole numbers or texts for classes, or all'
        ' floating-point numbers to predict.'
      )


def _refuse_flags_of_folders(given: Mapping[str, Any]) -> None:
  """Raises ValueError for a flag that has a meaning only if files are written."""
  for name in _OF_FOLDERS:
    if name in given:
      raise ValueError(f'{name} is about files: give output_dir, the folder of the run, too.')


@contextlib.contextmanager
def _without_dashes() -> Iterator[None]:
  """A context in which messages name settings as keywords, and not as flags."""
  try:
    yield
  except errors.DataError as error:
    raise errors.DataError(_as_keywords(str(error))) from error.__cause__
  except ValueError as error:
    if type(error) is not ValueError:  # Others are caught by their class.
      raise
    raise ValueError(_as_keywords(str(error))) from error.__cause__


def _as_keywords(text: str) -> str:
  """Returns a message with the names of flags as those of keywords."""
  return re.sub(r'(?<![\w-])--(?=[a-z])', '', text)


@contextlib.contextmanager
def _failures_of_the_library() -> Iterator[None]:
  """A context in which failures are errors that a program knows, not those of commands."""
  from tff_adaptive import runs

  try:
    yield
  except command.FailureError as error:
    if isinstance(error.__cause__, runs.NonFiniteWeightsError):
      raise error.__cause__ from None
    raise RuntimeError(_as_keywords(str(error))) from error.__cause__


@contextlib.contextmanager
def _context_comes_back() -> Iterator[None]:
  """A context after which TFF's default context is the one from before."""
  import tensorflow_federated as tff

  before = private_apis.default_context()
  try:
    yield
  finally:
    now = private_apis.default_context()
    tff.framework.set_default_context(before)
    if now is not before and hasattr(now, 'workers'):  # A `RayContext`: the run was all its use.
      now.close()
