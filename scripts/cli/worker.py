"""Works on a trial of a search in this process: trains its runs, and records what they come to."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import optuna

from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import names, summary
from tff_adaptive.training import protocols

from . import command, plan as plan_lib, run as run_lib, settings, study as study_lib

DIVERGED = '{} or the validation loss diverged, or no update of the last round was finite.'


class Answer(NamedTuple):
  """The outcome of a run, and for a run that diverged or failed the reason in one line.

  `kind` is 'done' (at the last round that was asked for), 'stopped' (by a signal; finished rounds
  are saved), 'diverged' or 'failed'.
  """

  kind: str
  reason: str = ''


# Trains a run of these settings to the given round, or to its end (None), or until a stop.
Train = Callable[[settings.Settings, int | None, protocols.Stop], Answer]


class Objective:
  """The function that Optuna optimizes: trains the runs of a trial, and returns their score."""

  def __init__(
    self,
    trials: study_lib.Study,
    plan: plan_lib.Plan,
    worker: str,
    stop: protocols.Stop,
    train: Train,
  ):
    """Creates the function.

    Args:
      trials: The study of the trial.
      plan: The flags of the search.
      worker: The name of this process.
      stop: Says whether a signal has asked this process to end.
      train: Trains a run.
    """
    self._trials = trials
    self._plan = plan
    self._worker = worker
    self._stop = stop
    self._train = train
    self.error: ValueError | None = None  # What makes the whole search invalid.

  def __call__(self, trial: optuna.Trial) -> float:
    """Trains the runs to each of `Plan.rungs`, where the trial may be pruned.

    Returns:
      The score, of which more is better.

    Raises:
      FailedError: If a run has failed.
      optuna.TrialPruned: If the trial is not among the best at a rung, or a run has diverged.
      SystemExit: If a signal stopped a run. The trial is then back in the queue.
      ValueError: If a run has no values of the metric.
    """
    try:
      return self._score(trial)
    except ValueError as error:
      self.error = error
      raise

  def _score(self, trial: optuna.Trial) -> float:
    number, runs = self._trials.begin(trial, self._worker)
    command.say(f'Trial {number + 1} of {self._trials.count()}:')
    rungs = self._plan.rungs(runs[0].training.rounds)
    for rounds in rungs[:-1]:
      worth = self._worth_after(trial, number, runs, rounds, is_last=False)
      reported = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
      # A trial that was queued again has inherited what its earlier attempt reported.
      if rounds not in reported:
        trial.report(worth, rounds)
      if trial.should_prune():
        raise optuna.TrialPruned
    return self._worth_after(trial, number, runs, rungs[-1], is_last=True)

  def _worth_after(
    self,
    trial: optuna.Trial,
    number: int,
    runs: list[settings.Settings],
    rounds: int,
    is_last: bool,
  ) -> float:
    """Trains the runs of a trial to a round, and returns how good they are then."""
    stop_after = None if is_last else rounds
    answers = [self._train(run, stop_after, self._stop) for run in runs]
    self._check(trial, answers)
    try:
      results = [self._plan.read(run.output.output_dir, rounds) for run in runs]
    except ValueError as error:  # Something else wrote to the folder.
      raise self._failed(trial, str(error)) from None
    column = self._plan.metric or tables.default_metric(results)
    is_finite, _, worth = scores.rank(results, column)
    if not is_finite:
      raise self._diverged(trial, DIVERGED.format(column))
    value = worth
    if names.is_error(column):
      value = -worth
    command.say(f'Trial {number + 1}, round {rounds}: {column} {value:.4g}')
    return worth

  def _check(self, trial: optuna.Trial, answers: list[Answer]) -> None:
    """Raises what `__call__` raises if a run was stopped, failed or diverged."""
    if any(answer.kind == 'stopped' for answer in answers):
      self._trials.release(self._worker)
      raise SystemExit(self._stop.exit_code)
    for answer in answers:
      if answer.kind == 'failed':
        raise self._failed(trial, answer.reason)
    for answer in answers:
      if answer.kind == 'diverged':
        raise self._diverged(trial, answer.reason)

  def _failed(self, trial: optuna.Trial, reason: str) -> Exception:
    trial.set_user_attr('reason', reason)
    return study_lib.FailedError(reason)

  def _diverged(self, trial: optuna.Trial, reason: str) -> Exception:
    """Records the reason, which distinguishes a diverged trial from a pruned one."""
    trial.set_user_attr('reason', reason)
    return optuna.TrialPruned(reason)


def train(run: settings.Settings, last_round: int | None, stop: protocols.Stop) -> Answer:
  """Trains a run in this process, unless it is complete or `stop` is requested.

  An error is not raised, but returned as the outcome 'failed' or 'diverged'. The output is appended
  to logs/NAME.log beside the run's folder NAME.

  Args:
    run: The settings of the run.
    last_round: The round after which to save and stop for now; None trains all rounds.
    stop: Gets the signal that ended the run, if any.
  """
  folder = run.output.output_dir
  if stop.requested:
    return Answer('stopped')
  if summary.is_complete(folder, run.training.rounds):
    if last_round is None:
      command.say(f'{folder}: complete already')
    return Answer('done')
  line = folder
  if last_round is not None:
    line += f' to round {last_round}'
  command.say(line)
  parent, name = os.path.split(os.path.abspath(folder))
  with _output_to(os.path.join(parent, 'logs', f'{name}.log')):
    answer = _train(run, last_round, stop)
  if answer.reason:
    command.say(f'{folder}: {answer.kind}: {answer.reason}')
  return answer


def _train(run: settings.Settings, last_round: int | None, stop: protocols.Stop) -> Answer:
  try:
    outcome = run_lib.run(run, last_round=last_round, stop=stop)
    run_lib.check_result(outcome.result)
  except command.DivergedError as error:
    return Answer('diverged', _one_line(error))
  except (command.FailureError, ValueError, OSError) as error:
    return Answer('failed', _one_line(error))
  except Exception as error:
    traceback.print_exc()
    return Answer('failed', f'{type(error).__name__}: {_one_line(error)}')
  if outcome.exit_code:  # The run has received the signal in place of this process.
    stop.request()
    stop.exit_code = outcome.exit_code
  if stop.requested:
    return Answer('stopped')
  return Answer('done')


def _one_line(error: Exception) -> str:
  return ' '.join(str(error).split())


@contextlib.contextmanager
def _output_to(path: str) -> Iterator[None]:
  """Appends the output of this process, also that of native code, to a file."""
  os.makedirs(os.path.dirname(path), exist_ok=True)
  streams = (sys.stdout, sys.stderr)
  # Descriptors and not Python's streams, because native code writes to these.
  before = [os.dup(number) for number in (1, 2)]
  with open(path, 'ab') as file:
    for number in (1, 2):
      os.dup2(file.fileno(), number)
  try:
    yield
  finally:
    for stream in streams:
      stream.flush()
    for number, copy in zip((1, 2), before):
      os.dup2(copy, number)
      os.close(copy)
