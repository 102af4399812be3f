"""Trains a run from `Settings` in this process."""

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tff_adaptive._utils import metric_names, user_code
from tff_adaptive.training import callbacks, protocols
from tff_adaptive_tasks import errors

from . import (
  command as command_lib,
  flags,
  json_lines,
  records,
  rules,
  settings as settings_lib,
  signals,
  tensorflow_start,
)


class Outcome(NamedTuple):
  """A run's `training.TrainingResult`, its exit code, its task and the task's model.

  The exit code is 0, or 128 + the number of a signal.
  """

  result: Any
  exit_code: int
  task: Any = None
  model: Any = None


class _Watch(callbacks.Callback):
  """A callback that records whether a run has begun, and requests its end at a given round.

  An error of a run that has begun is not bad input. A new start continues after the given round.
  """

  def __init__(self, last_round: int | None, stop: protocols.Stop):
    """Creates the callback; a request of `stop` before the run begins ends the run at once."""
    self._last_round: float = math.inf
    if last_round is not None:
      self._last_round = last_round
    self._stop = stop
    self.has_begun = False
    self.request: Callable[[], None] = lambda: None

  def begin(self, run: callbacks.RunInfo) -> None:
    """Requests the end at once if the run has done the given round already."""
    self.has_begun = True
    if run.first_round > self._last_round or self._stop.requested:
      self.request()

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Requests the end after the given round."""
    if row['round'] >= self._last_round:
      self.request()


def check(settings: settings_lib.Settings) -> None:
  """Raises ValueError or OSError if a run cannot use its files or folder. Writes nothing."""
  if settings.task_object is None:
    rules.check_data_dir(settings.what.task, settings.output.data_dir)
  settings.what.check_files()
  settings.population.build(settings.given)
  record = records.of(settings)
  if settings.folder is not None:
    records.check_folder(settings.folder, record)


def run(
  settings: settings_lib.Settings,
  command: Sequence[str] | None = None,
  last_round: int | None = None,
  stop: protocols.Stop | None = None,
  is_of_command: bool = True,
) -> Outcome:
  """Trains or resumes a run, to its end or until a signal requests the end.

  Args:
    settings: The settings of the run.
    command: The command line for config.json. By default one is made from the settings.
    last_round: The round after which to save and stop for now. None trains all rounds.
    stop: Whether the caller was asked to end before this function took over the signals.
    is_of_command: Whether the process is a command's, whose signals end a run after a round.
      Otherwise Ctrl-C raises KeyboardInterrupt after the last whole round has been saved.

  Raises:
    ValueError: If the data are bad, or the run's folder is in use or holds another run.
    command.FailureError: If the run began and failed. It can be resumed from the last checkpoint.
  """
  with tensorflow_start.without_notes():  # A user's own file may import TensorFlow.
    check(settings)
  if 'tensorflow_federated' not in sys.modules:
    settings.output.say('Loading TensorFlow ...')
  # Before the packages below, whose imports would load TensorFlow without these precautions.
  tensorflow_start.load()
  from tff_adaptive import engine, runs, training

  from . import build

  # Before TFF starts a worker, which is to end with this process.
  engine.remember_workers()
  try:
    line = command or ['train.py', *flags.command_line(settings.given)]
    prepared = build.prepare(settings, line)
  except engine.WorkerError as error:
    raise ValueError(str(error)) from None
  # A user's file may raise any error, and may call sys.exit.
  except BaseException as error:
    explanation = _explained(settings, error)
    if explanation is None:
      raise
    raise ValueError(explanation) from error
  arguments = prepared.arguments
  watch = _Watch(last_round, stop or protocols.Stop())
  arguments['callbacks'].append(watch)
  if settings.output.json:
    arguments['callbacks'].append(json_lines.JsonLines())
  quiet = bool(settings.output.quiet)
  listening: Any = contextlib.nullcontext(protocols.Stop())
  if is_of_command:
    listening = signals.StopGuard(engine.reap_workers)
  try:
    with listening as guard, _without_warnings(quiet):
      watch.request = guard.request
      result = training.train(stop=guard, show_progress=not quiet, **arguments)
  except engine.WorkerError as error:
    raise command_lib.FailureError(
      f'{error}. The rounds before are saved; the same command resumes, with any number of workers.'
    ) from None
  except runs.NonFiniteWeightsError as error:
    raise command_lib.DivergedError(error) from error
  except BaseException as error:
    explanation = _explained(settings, error)
    if not explanation and not isinstance(error, (ValueError, OSError)):
      raise  # A bug: DataError, StateError and SaveError are among those two.
    is_of_files = isinstance(error, (runs.StateError, runs.ResumeError))
    if is_of_files and not isinstance(error, runs.SaveError) and not watch.has_begun:
      raise  # The folder is bad input.
    raise command_lib.FailureError(explanation or error) from error
  finally:
    engine.reap_workers()
  # A signal in the last round changes nothing: the run is complete.
  exit_code = 0
  if not result.is_complete:
    exit_code = guard.exit_code
  return Outcome(result, exit_code, prepared.task, prepared.model)


@contextlib.contextmanager
def _without_warnings(is_quiet: bool) -> Iterator[None]:
  """A context without Python's warnings, which `training.train` gives where it shows no progress.

  If `is_quiet` is not set, the context changes nothing.
  """
  if not is_quiet:
    yield
    return
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    yield


def check_result(result: Any) -> None:
  """Raises DivergedError if a complete run's model is not usable. The run is saved in any case."""
  if not result.is_complete:
    return
  summary = result.summary
  if summary['ends_without_update']:
    rounds = summary['rounds_without_update']
    raise command_lib.DivergedError(
      f'all clients diverged in {rounds} rounds, including the last, which did not change the'
      ' model: lower --client_learning_rate, or give --clip_norm.'
    )
  for name, value in {**summary['last'], **summary.get('test', {})}.items():
    # A precision or AUC that is NaN is not defined on the data, which the loss would not be.
    is_undefined = math.isnan(value) and not metric_names.is_error(name)
    is_finite = math.isfinite(value) or is_undefined
    if name.startswith(('validation_', 'test_')) and not is_finite:
      raise command_lib.DivergedError(
        f'{name} is {value} after the last round: the model or the data are not sound. Look at'
        ' metrics.csv; a lower --client_learning_rate or --clip_norm may help.'
      )


def _explained(settings: settings_lib.Settings, error: BaseException) -> str | None:
  """Returns a message that names the failed line of a user's file; None if the error suffices."""
  sources = settings.sources()
  if not sources or isinstance(error, (errors.DataError, KeyboardInterrupt)):  # They say where.
    return None
  named = {key: settings.given_as(key) for key in sources}
  place = user_code.place(error)
  words = user_code.in_words(error)
  for key, source in sources.items():
    if place is not None and source.path == place.path:
      return f'{named[key]} failed in line {place.line}: {words}'
  # AutoGraph replaces the message of an error by a traceback, with these words.
  if isinstance(error, (ValueError, OSError)) and 'in user code' not in str(error):
    return None
  return f'{" or ".join(dict.fromkeys(named.values()))} cannot be used: {words}'
