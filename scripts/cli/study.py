"""The trials of a search, which Optuna stores in the sweep's folder.

All trials are queued when a search begins. Several processes, also on several machines that share
the folder, take trials from the queue. While a process works on a trial, it records a heartbeat. If
the heartbeats end, Optuna queues the trial again, and another process resumes its runs.

A trial that is queued again may be another trial for Optuna, with another number. A search
counts both as attempts at one trial, which is known by the user attribute `number`.
"""

import contextlib
import datetime
import fcntl
import functools
import json
import os
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import optuna
import sqlalchemy

from tff_adaptive._utils import private_apis
from tff_adaptive.runs import errors, state_path, summary

from . import plan as plan_lib, search_space, settings

FILE = 'study.sqlite'
_LOCK = '.study.lock'
_HEARTBEAT = 10  # Seconds between heartbeats.
_GRACE = 60  # Seconds without heartbeats after which a process counts as ended.
_MOST_RETRIES = 3  # Of a trial whose heartbeats ended. A new start of the command tries it again.
_BUSY = 60.0  # Seconds to wait for other processes that use the file.
_STARTUP = 10  # Trials that tpe draws at random.
# A search with another space, or other values of these flags, is a different search.
_IDENTITY = ('search', 'search_seed', 'first_rung', 'reduction_factor', 'metric', 'window')
# Flags with these endings a resumed run may change, but a search may not: they change its results.
_COUNTED = ('rounds', '_per_evaluation', 'target')
_NO_RESULT = 'its process ended without a result.'
_States = optuna.trial.TrialState
_NAMES = {
  _States.WAITING: 'waiting',
  _States.RUNNING: 'running',
  _States.COMPLETE: 'done',
  _States.PRUNED: 'pruned',
  _States.FAIL: 'failed',
}


class View(NamedTuple):
  """A trial as the table shows it.

  `point` has the values that the trial varies, by flag. `state` is 'waiting', 'running', 'done',
  'pruned', 'diverged' or 'failed'; only the last two have a `reason`. `folders` has for each run
  its folder and the values that it varies.
  """

  number: int
  point: search_space.Point
  state: str
  reason: str
  folders: list[tuple[str, search_space.Point]]


class Attempt(NamedTuple):
  """A trial that this process works on: its number, and the settings of its runs."""

  number: int
  runs: list[settings.Settings]


class Study:
  """The trials of a search, in a folder that several processes may share."""

  def __init__(self, folder: str, space: search_space.Space, plan: plan_lib.Plan):
    """Opens the study in the folder, or creates one. Queues the trials that are not there yet.

    Args:
      folder: The sweep's folder.
      space, plan: The space to search, and the flags that say how.

    Raises:
      ValueError: If the folder holds another search, or a damaged one, or its path is too long.
    """
    state_path.check_length(folder, FILE)  # SQLite's own message names no reason.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter('ignore', optuna.exceptions.ExperimentalWarning)
    self._folder = folder
    self._space = space
    self._plan = plan
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, FILE)
    with self._locked(), _undamaged(path):
      self._storage = _storage(path)
      self._study = self._open()
      self._queue()
      self.views()

  def retry(self) -> None:
    """Queues again what earlier starts left undone: failed trials, and trials with deleted runs.

    Raises ValueError if a folder holds another run, or lacks rows, which would change a mean.
    """
    with self._locked():
      for attempt in self._latest():
        view = self._view(attempt)
        if view.state == 'failed' or self._is_gone(view):
          again = optuna.create_trial(
            state=_States.WAITING,
            params=attempt.params,
            distributions=attempt.distributions,
            user_attrs={'number': view.number, 'point': view.point},
          )
          self._study.add_trial(again)

  def retry_lost(self) -> None:
    """Queues again the trials whose processes have ended without a word."""
    optuna.storages.fail_stale_trials(self._study)
    oldest = datetime.datetime.now() - datetime.timedelta(seconds=_GRACE)
    for trial in self._trials():
      is_running = trial.state == _States.RUNNING and trial.datetime_start <= oldest
      # Its process ended before the first heartbeat, for which Optuna does not look.
      if is_running and 'worker' not in trial.user_attrs:
        self._set_state(trial, _States.WAITING)

  def do_next(self, objective: Callable[[optuna.Trial], float]) -> None:
    """Takes a trial from the queue, if one is left, and calls `objective` with it.

    The trial ends as with Optuna's `optimize`. It has failed if `objective` raises `FailedError`.
    """
    if any(trial.state == _States.WAITING for trial in self._trials()):
      self._study.optimize(objective, n_trials=1, catch=(FailedError,))

  def begin(self, trial: optuna.Trial, worker: str) -> Attempt:
    """Draws the values of a trial, which the process `worker` has taken from the queue.

    Raises FailedError if the queue was empty, so that Optuna has made a trial of its own.
    """
    trial.set_user_attr('worker', worker)
    number = trial.user_attrs.get('number')
    if number is None:
      raise FailedError('no trial is left')
    self._study.sampler = _sampler(self._plan, number)
    point = self._space.draw(trial)
    trial.set_user_attr('point', point)
    return Attempt(number, self._space.runs(self._folder_of(number, point), point))

  def release(self, worker: str) -> None:
    """Puts the trial of a process that was asked to end back into the queue."""
    for trial in self._trials_of(worker):
      self._set_state(trial, _States.WAITING)

  def fail(self, worker: str, reason: str) -> bool:
    """Ends the trial of a process that has died. Returns whether the process had a trial."""
    trials = self._trials_of(worker)
    for trial in trials:
      optuna.Trial(self._study, private_apis.trial_number_in_storage(trial)).set_user_attr(
        'reason', reason
      )
      self._study.tell(trial.number, state=_States.FAIL)
    return bool(trials)

  def views(self) -> list[View]:
    """Returns all trials in the order of their numbers."""
    return [self._view(trial) for trial in self._latest()]

  def count(self, *states: str) -> int:
    """Returns the number of trials in the given states (see `View`), by default in any state."""
    views = self.views()
    if not states:
      return len(views)
    return len([view for view in views if view.state in states])

  def _trials(self) -> list[optuna.trial.FrozenTrial]:
    return self._study.get_trials(deepcopy=False)

  def _trials_of(self, worker: str) -> list[optuna.trial.FrozenTrial]:
    return [
      trial
      for trial in self._trials()
      if trial.state == _States.RUNNING and trial.user_attrs.get('worker') == worker
    ]

  def _latest(self) -> list[optuna.trial.FrozenTrial]:
    """Returns the latest attempt at each trial, in the order of the trials' numbers."""
    attempts: dict[int, optuna.trial.FrozenTrial] = {}
    for trial in self._trials():
      if 'number' in trial.user_attrs:
        attempts[trial.user_attrs['number']] = trial
    return [attempts[number] for number in sorted(attempts)]

  def _set_state(self, trial: optuna.trial.FrozenTrial, state: optuna.trial.TrialState) -> None:
    # Another process may have ended the trial since it was read.
    with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
      self._storage.set_trial_state_values(private_apis.trial_number_in_storage(trial), state)

  def _view(self, trial: optuna.trial.FrozenTrial) -> View:
    number = trial.user_attrs['number']
    point = trial.user_attrs.get('point', {})
    reason = trial.user_attrs.get('reason', '')
    state = _NAMES[trial.state]
    if state == 'pruned' and reason:  # Optuna has no other state for it.
      state = 'diverged'
    if state == 'failed':
      reason = reason or _NO_RESULT
    folders = self._space.folders(self._folder_of(number, point), point)
    return View(number, point, state, reason, folders)

  def _folder_of(self, number: int, point: search_space.Point) -> str:
    return os.path.join(self._folder, self._plan.folder(number, point))

  def _is_gone(self, view: View) -> bool:
    """Returns whether a run of a 'done' trial is missing or incomplete."""
    if view.state in ('waiting', 'running'):
      return False
    # Of all that have ended, because this refuses a folder that holds another run.
    runs = [self._space.settings(point, folder) for folder, point in view.folders]
    if view.state != 'done':
      return False
    for run in runs:
      if not summary.is_complete(run.output.output_dir, run.training.rounds):
        return True
    for run in runs:
      self._plan.read(run.output.output_dir, run.training.rounds)
    return False

  def _open(self) -> optuna.Study:
    """Opens or creates the Optuna study. Raises ValueError if the folder holds another search."""
    plan = self._plan
    identity = self._identity()
    studies = self._storage.get_all_studies()
    # A study whose start was killed has no identity yet.
    begun = [study for study in studies if 'identity' in study.user_attrs]
    name = f'{plan.search}-{len(studies)}'
    for study in begun:
      before = study.user_attrs['identity']
      if before == identity:
        name = study.study_name
      # Grids may change: complete runs are found again by their folders.
      elif not plan.is_grid or before['--search'] != 'grid':
        both = {**identity, **before}
        changed = [flag for flag in both if before.get(flag) != identity.get(flag)]
        raise errors.ResumeError(
          f'--output_dir={self._folder} holds a search that differs in {", ".join(changed)}:'
          ' give what it was, or another folder.'
        )
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if plan.first_rung:
      pruner = optuna.pruners.SuccessiveHalvingPruner(plan.first_rung, plan.reduction_factor)
    study = optuna.create_study(
      storage=self._storage,
      study_name=name,
      # A trial is reported by its worth, of which more is better for errors too.
      direction='maximize',
      pruner=pruner,
      load_if_exists=True,
    )
    study.set_user_attr('identity', identity)
    return study

  def _identity(self) -> dict[str, Any]:
    """Returns what makes the search another one if it changes, by flag."""
    plan = self._plan
    space = self._space
    identity: dict[str, Any] = {f'--{name}': getattr(plan, name) for name in _IDENTITY}
    if plan.search != 'tpe' and plan.first_rung is None:  # No trial is compared before the table.
      del identity['--metric']
      del identity['--window']
    identity['--grid or --range'] = space.axes
    identity['--grid=seed'] = space.seeds
    for name in sorted(space.given):
      if name not in settings.CHANGE_NO_NUMBER or name.endswith(_COUNTED):
        identity[f'--{name}'] = space.given[name]
    # As it comes back from the storage, where tuples have become lists.
    as_stored: dict[str, Any] = json.loads(json.dumps(identity))
    return as_stored

  def _queue(self) -> None:
    """Queues the trials that no earlier start has queued."""
    queued = {trial.user_attrs['number']: trial for trial in self._latest()}
    if not self._plan.is_grid:
      for number in range(self._plan.trials or 0):
        if number not in queued:
          # Without values: these are drawn when the trial begins, from what is known by then.
          self._study.enqueue_trial({}, user_attrs={'number': number})
      return
    for number, point in enumerate(self._space.points()):
      if number not in queued:
        self._study.enqueue_trial(dict(point), user_attrs={'number': number, 'point': point})
      elif queued[number].user_attrs['point'] != point:
        raise ValueError(f'a trial has the settings {queued[number].user_attrs["point"]!r:.80}')

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    """Keeps other processes from queueing trials at the same time."""
    with open(os.path.join(self._folder, _LOCK), 'ab') as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      yield


class FailedError(Exception):
  """An error that ends a trial, but not the search."""


def _sampler(plan: plan_lib.Plan, number: int) -> optuna.samplers.BaseSampler:
  """Returns the sampler of a trial. Each has a seed, so that a resumed search draws the same."""
  entropy = np.random.SeedSequence([plan.search_seed, number])
  seed = entropy.generate_state(1).item()
  if plan.search == 'tpe':
    # Trials under way count as bad ones, so that processes side by side draw points apart.
    return optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
  return optuna.samplers.RandomSampler(seed=seed)


def preview(plan: plan_lib.Plan, space: search_space.Space) -> list[search_space.Point]:
  """Returns the points that a search draws without results: for random all, for tpe up to 10."""
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  number = plan.trials or 0
  if plan.search == 'tpe':
    number = min(number, _STARTUP)
  study = optuna.create_study()
  points = []
  for i in range(number):
    study.sampler = _sampler(plan, i)
    points.append(space.draw(study.ask()))
  return points


def _storage(path: str) -> optuna.storages.RDBStorage:
  """Opens the SQLite file of a study, or creates it. Raises ValueError if it is damaged."""
  connect = functools.partial(
    # Transactions begin by the event below, not by the rules of Python's `sqlite3`.
    sqlite3.connect,
    path,
    timeout=_BUSY,
    isolation_level=None,
    check_same_thread=False,
  )
  with contextlib.closing(connect()) as connection:
    (state,) = connection.execute('PRAGMA quick_check(1)').fetchone()
  if state != 'ok':
    raise ValueError(state)
  storage = optuna.storages.RDBStorage(
    'sqlite://',
    engine_kwargs={'creator': connect, 'poolclass': sqlalchemy.pool.NullPool},
    heartbeat_interval=_HEARTBEAT,
    grace_period=_GRACE,
    heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(
      _MOST_RETRIES, inherit_intermediate_values=True
    ),
  )

  # Optuna reads that a trial waits, and then takes it. Without this, two processes could take it.
  @sqlalchemy.event.listens_for(storage.engine, 'begin')
  def _begin(connection: Any) -> None:
    connection.exec_driver_sql('BEGIN IMMEDIATE')

  return storage


@contextlib.contextmanager
def _undamaged(path: str) -> Iterator[None]:
  """A context manager that turns errors on a damaged file of a study into a ValueError."""
  try:
    yield
  except (OSError, errors.ResumeError):
    raise
  except Exception as error:  # Optuna does not check values before it uses them.
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    raise ValueError(
      f'{path} is damaged ({reason}): move it away; runs that are complete stay so.'
    ) from None
