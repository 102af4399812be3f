"""The trials of a search, kept by Optuna in the sweep's folder: who does which, what came of them.

Several processes, on several machines that share the folder, may work on one study. A trial belongs
to whoever holds the lock of its file; the system frees it however a process ends, and the next one
goes on with the trial, whose runs are resumed. A trial that failed stays open in the same way.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from typing import IO

import numpy as np
import optuna

from . import search_space, settings

JOURNAL = 'study.journal'
_LOCKS = '.locks'
_STARTUP = 10  # Trials that tpe draws at random.
# Settings that may change from one start to the next though they are not harmless to a trial.
_COUNTED = ('rounds', 'rounds_per_evaluation')
_States = optuna.trial.TrialState


@dataclasses.dataclass(frozen=True)
class Plan:
  """How a space is searched, by sweep.py's flags.

  Attributes:
    search: 'grid', 'random' or 'tpe'.
    trials: How many, of random and tpe.
    search_seed: Of what random and tpe draw.
    first_rung: Rounds after which the first trials are pruned; None: none are.
    reduction_factor: One trial in so many goes on from a rung to the next, which has so many times
      the rounds.
    metric: The column of metrics.csv that counts; None: the task's.
  """

  search: str
  trials: int | None = None
  search_seed: int = 0
  first_rung: int | None = None
  reduction_factor: int = 3
  metric: str | None = None

  def rungs(self, rounds: int) -> list[int]:
    """The rounds at which a trial is compared, and the last."""
    found = []
    rung = self.first_rung or rounds
    while rung < rounds:
      found.append(rung)
      rung *= self.reduction_factor
    return [*found, rounds]

  def folder(self, number: int, point: search_space.Point) -> str:
    """The name of a trial's folder."""
    return search_space.label(point) if self.search == 'grid' else f'trial={number}'

  def sampler(self, number: int) -> optuna.samplers.BaseSampler:
    """What draws trial `number`, from a seed of its own: resumed, a search draws the same."""
    seed = int(np.random.SeedSequence([self.search_seed, number]).generate_state(1)[0])
    if self.search == 'tpe':
      return optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
    return optuna.samplers.RandomSampler(seed=seed)

  def preview(self, space: search_space.Space) -> list[search_space.Point]:
    """Returns the first points that would be drawn; of tpe those that no result decides."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    number = min(self.trials or 0, _STARTUP) if self.search == 'tpe' else self.trials or 0
    return [space.draw(optuna.create_study(sampler=self.sampler(n)).ask()) for n in range(number)]


@dataclasses.dataclass(frozen=True)
class View:
  """A trial as the table shows it.

  Attributes:
    number: The trial's.
    point: Flag -> value, as text.
    state: 'waiting', 'running', 'done', 'pruned', 'diverged' or 'failed'.
    reason: Why it diverged or failed.
    folders: The folder of each of its runs, and what that varies.
  """

  number: int
  point: search_space.Point
  state: str
  reason: str
  folders: list[tuple[str, search_space.Point]]


class Claim:
  """A trial that this process does.

  Attributes:
    number: The trial's.
    runs: The settings of its runs.
    close: Leaves it to whoever comes next.
  """

  def __init__(self, trial: optuna.Trial, runs: list[settings.Settings], lock: IO[bytes]):
    self._trial, self.number, self.runs, self.close = trial, trial.number, runs, lock.close

  def should_prune(self, rounds: int, score: float) -> bool:
    """Reports the score after so many rounds; whether others leave it no room on the next rung."""
    frozen = self._trial.study.get_trials(deepcopy=False)[self.number]
    if rounds not in frozen.intermediate_values:
      self._trial.report(score, rounds)
    return self._trial.should_prune()

  def finish(self, state: str, score: float | None = None, reason: str = '') -> None:
    """Records what came of it: a state as of `View`; what failed is for the next start.

    A trial that diverged is one that Optuna knows to be worse than all others.
    """
    self._trial.set_user_attr('reason', reason)
    if state == 'failed':
      self._trial.set_user_attr('failures', self._trial.user_attrs.get('failures', 0) + 1)
    elif state == 'done':
      self._trial.study.tell(self.number, score)
    else:
      self._trial.study.tell(self.number, state=_States.PRUNED)
    self.close()


class Study:
  """The trials in a folder."""

  def __init__(self, folder: str, space: search_space.Space, plan: Plan):
    """Opens the study in the folder, or begins it.

    Args:
      folder: The sweep's.
      space: What is varied.
      plan: How.

    Raises:
      ValueError: If the folder holds another search, or a damaged one.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    self._folder, self._space, self._plan = folder, space, plan
    os.makedirs(os.path.join(folder, _LOCKS), exist_ok=True)
    # Absolute: the lock is a link to the journal, and one that leads nowhere is never seen as old.
    path = os.path.abspath(os.path.join(folder, JOURNAL))
    lock = optuna.storages.journal.JournalFileSymlinkLock(path)
    backend = optuna.storages.journal.JournalFileBackend(path, lock)
    with self._locked():
      with _undamaged(path):
        _drop_torn_line(path, lock)
        self._storage = optuna.storages.JournalStorage(backend)
      self._study = self._open()
      with _undamaged(path):
        if plan.search == 'grid':
          self._queue()
        self.views()
        self._failures = self._failed()

  def claim(self) -> Claim | None:
    """Returns a trial to do: one whose process has ended, one that waits, or a new one."""
    with self._locked():
      trials = self._trials()
      for number in [frozen.number for frozen in trials if self._is_open(frozen.number)]:
        if lock := self._lock(number):
          # Its process may have finished it since they were read, and only then let the lock go.
          if self._is_open(number):
            return self._claimed(number, lock)
          lock.close()
      is_more = self._plan.search != 'grid' and len(trials) < (self._plan.trials or 0)
      if not is_more and not any(t.state == _States.WAITING for t in trials):
        return None
      number = self._study.ask().number
      lock = self._lock(number)
      assert lock is not None
      return self._claimed(number, lock)

  def views(self) -> list[View]:
    """Returns the trials."""
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

  def runs(self, view: View) -> list[settings.Settings]:
    """The settings of a trial's runs; ValueError if their folders hold others."""
    return [self._space.settings(point, folder) for folder, point in view.folders]

  def _trials(self) -> list[optuna.trial.FrozenTrial]:
    return self._study.get_trials(deepcopy=False)

  def _failed(self) -> dict[int, int]:
    return {trial.number: trial.user_attrs.get('failures', 0) for trial in self._trials()}

  def _is_open(self, number: int) -> bool:
    """Whether a trial has begun and is not done; one that fails is for the next start."""
    trial = self._trials()[number]
    has_failed = self._failed()[number] > self._failures.get(number, 0)
    return trial.state == _States.RUNNING and not (has_failed and trial.user_attrs.get('reason'))

  def _claimed(self, number: int, lock: IO[bytes]) -> Claim:
    self._study.sampler = self._plan.sampler(number)
    study_id = self._storage.get_study_id_from_name(self._study.study_name)
    trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
    trial = optuna.Trial(self._study, trial_id)
    drawn = self._space.draw(trial)
    trial.set_user_attr('point', trial.user_attrs.get('point') or drawn)
    trial.set_user_attr('reason', '')
    view = next(view for view in self.views() if view.number == number)
    return Claim(trial, self.runs(view), lock)

  def _open(self) -> optuna.Study:
    """Opens the storage's study; ValueError if it has another."""
    plan, given = self._plan, self._space.given
    # What makes it this one, by flags.
    identity = {f'--{name}': value for name, value in vars(plan).items() if name != 'trials'}
    if plan.search != 'tpe' and plan.first_rung is None:  # No trial is compared before the table.
      del identity['--metric']
    identity |= {'--grid or --range': self._space.axes, '--grid=seed': self._space.seeds}
    numbers = {n for n in given if n not in settings.CHANGE_NO_NUMBER or n in _COUNTED}
    identity |= {f'--{name}': given[name] for name in sorted(numbers)}
    text = json.dumps(identity)
    name = f'{plan.search}-{hashlib.sha256(text.encode()).hexdigest()[:12]}'
    for other in self._storage.get_all_studies():
      # Grids may change: complete runs are found again by their folders.
      are_grids = plan.search == 'grid' and other.study_name.startswith('grid-')
      if not are_grids and other.study_name != name:
        before = json.loads(other.user_attrs.get('identity', '{}'))
        changed = [flag for flag, v in json.loads(text).items() if before.get(flag) != v]
        raise ValueError(
          f'--output_dir={self._folder} holds a search that differs in {", ".join(changed)}: give'
          ' what it was, or another folder.'
        )
    pruner = optuna.pruners.SuccessiveHalvingPruner(plan.first_rung or 1, plan.reduction_factor)
    study = optuna.create_study(
      storage=self._storage,
      study_name=name,
      direction='maximize',
      pruner=pruner if plan.first_rung else optuna.pruners.NopPruner(),
      load_if_exists=True,
    )
    if 'identity' not in study.user_attrs:
      study.set_user_attr('identity', text)
    return study

  def _queue(self) -> None:
    """Queues the points of a grid; a start before may have been killed among them."""
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
    """Returns a trial's file with its lock, held until it is closed or the process ends."""
    name = f'{self._study.study_name}-{number}'
    file = open(os.path.join(self._folder, _LOCKS, name), 'ab')  # noqa: SIM115
    try:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
      file.close()
      return None
    return file


@contextlib.contextmanager
def _undamaged(path: str) -> Iterator[None]:
  """A context in which the journal is replayed: what Optuna makes of other lines is damage."""
  try:
    yield
  except OSError:
    raise
  except Exception as error:  # Optuna takes lines for what they should be.
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    raise ValueError(
      f'{path} is damaged ({reason}): move it away; runs that are complete stay so.'
    ) from None


def _drop_torn_line(path: str, lock: optuna.storages.journal.JournalFileSymlinkLock) -> None:
  """Drops the end of a line whose writer was killed, to which the next one would be joined."""
  lock.acquire()  # Others may be writing.
  try:
    with open(path, 'r+b') as file:
      content = file.read()
      end = content.rfind(b'\n') + 1
      for line in content[:end].splitlines():
        json.loads(line)  # Of the last one Optuna would find it only with the next.
      file.truncate(end)
  finally:
    lock.release()
