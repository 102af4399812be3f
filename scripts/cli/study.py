"""The trials of a search, which Optuna stores in the sweep's folder.

Several processes, also on several machines that share the folder, may work on one study. A trial
belongs to the process that has locked the trial's file. The system frees the lock however that
process ends, and another process then continues the trial and resumes its runs. A failed trial is
continued by the next start of the command.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import optuna

from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import errors, names, summary

from . import command, plan as plan_lib, search_space, settings, worker

JOURNAL = 'study.journal'
DIVERGED = '{} or the validation loss diverged, or no update of the last round was finite.'
_LOCKS = '.locks'
_STARTUP = 10  # Trials that tpe draws at random.
# A search with another space, or other values of these flags, is a different search.
_IDENTITY = ('search', 'search_seed', 'first_rung', 'reduction_factor', 'metric', 'window')
# Flags with these endings a resumed run may change, but a search may not: they change its results.
_COUNTED = ('rounds', '_per_evaluation', 'target')
_States = optuna.trial.TrialState


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


class Claim:
  """A trial that this process works on.

  Attributes:
    number: The number of the trial.
    runs: The settings of the trial's runs.
    close: A function that releases the trial for other processes.
  """

  def __init__(
    self, trial: optuna.Trial, runs: list[settings.Settings], lock: IO[bytes], plan: plan_lib.Plan
  ):
    self._trial, self.number, self.runs, self.close = trial, trial.number, runs, lock.close
    self._plan = plan

  def do(self, train: worker.Train) -> None:
    """Trains the runs to each of `Plan.rungs`, where the trial may be pruned. Records the result.

    If a signal stops a run, the trial is released without a result, for a later start. Raises
    ValueError if a run has no values of the metric.
    """
    rungs = self._plan.rungs(self.runs[0].training.rounds)
    for rounds in rungs:
      is_last = rounds == rungs[-1]
      answers = [train(run, None if is_last else rounds) for run in self.runs]
      if any(answer.kind == 'stopped' for answer in answers):
        return self.close()
      for kind in ('failed', 'diverged'):
        if found := [answer.reason for answer in answers if answer.kind == kind]:
          return self.finish(kind, reason=found[0])
      try:
        done = [self._plan.read(run.output.output_dir, rounds) for run in self.runs]
      except ValueError as error:  # Something else wrote to the folder.
        return self.finish('failed', reason=str(error))
      column = self._plan.metric or tables.default_metric(done)
      is_finite, _, worth = scores.rank(done, column)
      if not is_finite:
        return self.finish('diverged', reason=DIVERGED.format(column))
      value = -worth if names.is_error(column) else worth
      command.say(f'Trial {self.number + 1}, round {rounds}: {column} {value:.4g}')
      if is_last or self.should_prune(rounds, worth):
        return self.finish('done' if is_last else 'pruned', worth)

  def finish(self, state: str, worth: float | None = None, reason: str = '') -> None:
    """Records how the trial ended, and releases the trial for other processes.

    `state` is 'done' (give `worth`, greater is better), 'pruned', 'diverged' or 'failed' (give a
    `reason` for these two). Optuna counts 'diverged' as pruned. The next start repeats 'failed'.
    """
    self._trial.set_user_attr('reason', reason)
    if state == 'done':
      self._trial.study.tell(self.number, worth)
    elif state != 'failed':
      self._trial.study.tell(self.number, state=_States.PRUNED)
    self.close()

  def should_prune(self, rounds: int, worth: float) -> bool:
    """Reports `worth` (greater is better) after `rounds`. Returns whether to stop the trial."""
    frozen = self._trial.study.get_trials(deepcopy=False)[self.number]
    if rounds not in frozen.intermediate_values:
      self._trial.report(worth, rounds)
    return self._trial.should_prune()


class Study:
  """The trials of a search, in a folder that several processes may share."""

  def __init__(self, folder: str, space: search_space.Space, plan: plan_lib.Plan):
    """Opens the study in the folder, or creates one.

    Args:
      folder: The sweep's folder.
      space, plan: The space to search, and the flags that say how.

    Raises:
      ValueError: If the folder holds another search, or a damaged one.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    self._folder, self._space, self._plan = folder, space, plan
    os.makedirs(os.path.join(folder, _LOCKS), exist_ok=True)
    # Absolute: Optuna's lock is a link to it, and never expires if the link leads nowhere.
    path = os.path.abspath(os.path.join(folder, JOURNAL))
    lock = optuna.storages.journal.JournalFileSymlinkLock(path)
    backend = optuna.storages.journal.JournalFileBackend(path, lock)
    with self._locked(), _undamaged(path):
      _drop_torn_line(path, lock)
      self._storage = optuna.storages.JournalStorage(backend)
      self._study = self._open()
      if plan.is_grid:
        self._queue()
      for view in self.views():
        if view.state == 'failed':
          self._trial(view.number).set_user_attr('reason', '')

  def claim(self) -> Claim | None:
    """Returns an abandoned, a waiting or a new trial to work on, or None if none is left."""
    with self._locked():
      trials = self._trials()
      for number in [frozen.number for frozen in trials if self._is_open(frozen.number)]:
        if lock := self._lock(number):
          # Its process may have finished and released it since the trials were read.
          if self._is_open(number):
            return self._claimed(number, lock)
          lock.close()
      is_more = not self._plan.is_grid and len(trials) < (self._plan.trials or 0)
      if not is_more and not any(t.state == _States.WAITING for t in trials):
        return None
      number = self._study.ask().number
      lock = self._lock(number)
      assert lock is not None
      return self._claimed(number, lock)

  def views(self) -> list[View]:
    """Returns all trials in the order of their numbers."""
    found: dict[str, View] = {}
    for frozen in self._trials():
      point, reason = frozen.user_attrs.get('point', {}), frozen.user_attrs.get('reason', '')
      state = {
        _States.WAITING: 'waiting',
        _States.RUNNING: 'failed' if reason else 'running',
        _States.COMPLETE: 'done',
        _States.PRUNED: 'diverged' if reason else 'pruned',
        _States.FAIL: 'failed',
      }[frozen.state]
      name = self._plan.folder(frozen.number, point)
      folders = self._space.folders(os.path.join(self._folder, name), point)
      # A point of a grid is one trial, whatever a damaged journal says.
      found.setdefault(name, View(frozen.number, point, state, reason, folders))
    return list(found.values())

  def gone(self) -> list[settings.Settings]:
    """Returns all runs of each 'done' trial in which a run is missing or incomplete.

    Raises ValueError if a folder holds another run, or lacks rows, which would change a mean.
    """
    found: list[settings.Settings] = []
    for view in self.views():
      runs = () if view.state in ('waiting', 'running') else self.runs(view)  # Checks the folders.
      ends = [(run.output.output_dir, run.training.rounds) for run in runs]
      if view.state == 'done' and not all(summary.is_complete(*end) for end in ends):
        found += runs
      elif view.state == 'done':
        for end in ends:
          self._plan.read(*end)
    return found

  def runs(self, view: View) -> list[settings.Settings]:
    """Returns the settings of a trial's runs. Raises ValueError if a folder holds another run."""
    return [self._space.settings(point, folder) for folder, point in view.folders]

  def _trials(self) -> list[optuna.trial.FrozenTrial]:
    return self._study.get_trials(deepcopy=False)

  def _is_open(self, number: int) -> bool:
    """Returns whether a trial has begun, has no result, and has not failed since the last start."""
    trial = self._trials()[number]
    return trial.state == _States.RUNNING and not trial.user_attrs.get('reason')

  def _trial(self, number: int) -> optuna.Trial:
    study_id = self._storage.get_study_id_from_name(self._study.study_name)
    trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
    return optuna.Trial(self._study, trial_id)

  def _claimed(self, number: int, lock: IO[bytes]) -> Claim:
    self._study.sampler = _sampler(self._plan, number)
    trial = self._trial(number)
    drawn = self._space.draw(trial)
    trial.set_user_attr('point', trial.user_attrs.get('point') or drawn)
    view = next(view for view in self.views() if view.number == number)
    return Claim(trial, self.runs(view), lock, self._plan)

  def _open(self) -> optuna.Study:
    """Opens or creates the Optuna study. Raises ValueError if the folder holds another search."""
    plan, given = self._plan, self._space.given
    identity = {f'--{name}': getattr(plan, name) for name in _IDENTITY}
    if plan.search != 'tpe' and plan.first_rung is None:  # No trial is compared before the table.
      del identity['--metric'], identity['--window']
    identity |= {'--grid or --range': self._space.axes, '--grid=seed': self._space.seeds}
    numbers = {n for n in given if n not in settings.CHANGE_NO_NUMBER or n.endswith(_COUNTED)}
    identity |= {f'--{name}': given[name] for name in sorted(numbers)}
    identity = json.loads(json.dumps(identity))
    every = self._storage.get_all_studies()
    # A study whose start was killed has no identity yet.
    known = {o.study_name: o.user_attrs['identity'] for o in every if 'identity' in o.user_attrs}
    # Grids may change: complete runs are found again by their folders.
    if not plan.is_grid or any(before['--search'] != 'grid' for before in known.values()):
      for before in known.values():
        if changed := [flag for flag, value in identity.items() if before.get(flag) != value]:
          raise errors.ResumeError(
            f'--output_dir={self._folder} holds a search that differs in {", ".join(changed)}:'
            ' give what it was, or another folder.'
          )
    pruner = optuna.pruners.SuccessiveHalvingPruner(plan.first_rung or 1, plan.reduction_factor)
    same = [name for name, before in known.items() if before == identity]
    study = optuna.create_study(
      storage=self._storage,
      study_name=same[0] if same else f'{plan.search}-{len(every)}',
      direction='maximize',
      pruner=pruner if plan.first_rung else optuna.pruners.NopPruner(),
      load_if_exists=True,
    )
    study.set_user_attr('identity', identity)
    return study

  def _queue(self) -> None:
    """Queues the points of a grid, except those that an earlier start has queued."""
    points = self._space.points()
    queued = [trial.user_attrs.get('point') for trial in self._trials()]
    if strangers := [point for point in queued if point not in points]:
      raise ValueError(f'a trial has the settings {strangers[0]!r:.80}')
    for point in points:
      if point not in queued:
        self._study.enqueue_trial(dict(point), user_attrs={'point': point})

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    with open(os.path.join(self._folder, _LOCKS, 'study'), 'ab') as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      yield

  def _lock(self, number: int) -> IO[bytes] | None:
    """Locks a trial until the returned file closes. Returns None if another process works on it."""
    name = f'{self._study.study_name}-{number}'
    file = open(os.path.join(self._folder, _LOCKS, name), 'ab')  # noqa: SIM115
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      file.close()
      return None
    return file


def preview(plan: plan_lib.Plan, space: search_space.Space) -> list[search_space.Point]:
  """Returns the points that a search draws without results: for random all, for tpe up to 10."""
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  number = min(plan.trials or 0, _STARTUP) if plan.search == 'tpe' else plan.trials or 0
  return [space.draw(optuna.create_study(sampler=_sampler(plan, n)).ask()) for n in range(number)]


def _sampler(plan: plan_lib.Plan, number: int) -> optuna.samplers.BaseSampler:
  """Returns trial `number`'s sampler with its own seed, so that a resumed search draws the same."""
  seed = np.random.SeedSequence([plan.search_seed, number]).generate_state(1).item()
  if plan.search == 'tpe':
    return optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
  return optuna.samplers.RandomSampler(seed=seed)


@contextlib.contextmanager
def _undamaged(path: str) -> Iterator[None]:
  """A context manager that turns Optuna's errors on a damaged journal into a ValueError."""
  try:
    yield
  except (OSError, errors.ResumeError):
    raise
  except Exception as error:  # Optuna does not check lines before it uses them.
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    raise ValueError(
      f'{path} is damaged ({reason}): move it away; runs that are complete stay so.'
    ) from None


def _drop_torn_line(path: str, lock: optuna.storages.journal.JournalFileSymlinkLock) -> None:
  """Drops an incomplete last line of a killed writer, so that the next line is not joined to it."""
  lock.acquire()  # Other processes may be writing.
  try:
    with open(path, 'r+b') as file:
      content = file.read()
      end = content.rfind(b'\n') + 1
      for line in content[:end].splitlines():
        json.loads(line)  # Optuna reports a bad last line only after the next one.
      file.truncate(end)
  finally:
    lock.release()
