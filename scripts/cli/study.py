"""The trials of a search, kept by Optuna in the sweep's folder: who does which, what came of them.

Several processes, on several machines that share the folder, may work on one study. A trial belongs
to the process that holds the lock of its file; the system frees it however the process ends, and
whoever comes next goes on with the trial, whose runs are resumed.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np
import optuna

from tff_adaptive._utils import private_apis

from . import search_space, settings

JOURNAL = 'study.journal'
_LOCKS = '.locks'
_STARTUP = 10  # Trials that tpe draws at random.
# Settings that may change from one start to the next though they are not harmless to a trial.
_COUNTED = ('rounds', 'rounds_per_evaluation')
States = optuna.trial.TrialState


@dataclasses.dataclass(frozen=True)
class Plan:
  """How a space is searched.

  Attributes:
    search: 'grid', 'random' or 'tpe'.
    trials: How many, of random and tpe.
    seed: Of what random and tpe draw.
    first_rung: Rounds after which the first trials are pruned; None: none are.
    factor: One trial in so many goes on from a rung to the next, which has so many times the
      rounds.
    metric: The column of metrics.csv that counts; None: that of the study, or else the task's.
  """

  search: str
  trials: int | None = None
  seed: int = 0
  first_rung: int | None = None
  factor: int = 3
  metric: str | None = None

  @property
  def compares(self) -> bool:
    """Whether which trials there are, or go on, depends on the others' values."""
    return self.search == 'tpe' or self.first_rung is not None

  def rungs(self, rounds: int) -> list[int]:
    """The rounds at which a trial is compared, and the last."""
    found = []
    rung = self.first_rung or rounds
    while rung < rounds:
      found.append(rung)
      rung *= self.factor
    return [*found, rounds]


@dataclasses.dataclass(frozen=True)
class View:
  """A trial as the table shows it.

  Attributes:
    number: The trial's.
    point: Flag -> value, as text.
    state: 'waiting', 'running', 'done', 'pruned', 'diverged' or 'failed'.
    reason: Why it diverged or failed.
  """

  number: int
  point: Mapping[str, str]
  state: str
  reason: str = ''


class Claim:
  """A trial that this process does.

  Attributes:
    number: The trial's; that of the first try, if it failed and is tried again.
    point: Flag -> value, as text.
  """

  def __init__(self, trial: optuna.Trial, point: dict[str, str], lock: IO[bytes]):
    self._trial, self._lock = trial, lock
    self.number = _first_number(trial)
    self.point = point

  def reported(self) -> list[int]:
    """The rounds at which a score has been reported."""
    frozen = self._trial.study.get_trials(deepcopy=False)[self._trial.number]
    return sorted(frozen.intermediate_values)

  def should_prune(self, rounds: int, score: float) -> bool:
    """Reports the score after so many rounds; whether others leave it no room on the next rung."""
    if rounds not in self.reported():
      self._trial.report(score, rounds)
    return self._trial.should_prune()

  def finish(self, state: str, score: float | None = None, reason: str = '') -> None:
    """Records what came of it: a state as of `View`.

    A trial that diverged is one that Optuna knows to be worse than all others.
    """
    if reason:
      self._trial.set_user_attr('reason', reason)
    study = self._trial.study
    if state == 'done':
      study.tell(self._trial, score)
    else:
      study.tell(self._trial, state=States.FAIL if state == 'failed' else States.PRUNED)
    self._lock.close()


class Study:
  """The trials in a folder."""

  def __init__(
    self,
    folder: str,
    space: search_space.Space,
    plan: Plan,
    is_there: Callable[[int, Mapping[str, str]], bool] = lambda number, point: True,
  ):
    """Opens the study in the folder, or begins it.

    Args:
      folder: The sweep's.
      space: What is varied.
      plan: How.
      is_there: Whether the runs of a trial that is done are there still, by its number and point.

    Raises:
      ValueError: If the folder holds another search.
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
        storage = optuna.storages.JournalStorage(backend)
      self._study = self._open(storage)
      with _undamaged(path):
        self._check_points()
        if not isinstance(self.metric, str | None):
          raise ValueError(f'its metric is {self.metric!r:.80}')
      self._check_metric()
      self._queue(is_there)

  def claim(self) -> Claim | None:
    """Returns a trial to do: one whose process has ended, one that waits, or a new one."""
    with self._locked():
      trials = self._study.get_trials(deepcopy=False)
      for frozen in trials:
        if frozen.state == States.RUNNING:
          lock = self._lock(str(frozen.number), wait=False)
          if lock is None:
            continue
          # Its process may have finished it since they were read, and only then let the lock go.
          if self._study.get_trials(deepcopy=False)[frozen.number].state != States.RUNNING:
            lock.close()
            continue
          trial = optuna.Trial(self._sampling(frozen.number), private_apis.trial_id(frozen))
          return self._claimed(trial, lock)
      firsts = [t for t in trials if 'again' not in t.user_attrs]
      is_more = self._plan.search != 'grid' and len(firsts) < (self._plan.trials or 0)
      if not is_more and not any(t.state == States.WAITING for t in trials):
        return None
      trial = self._sampling(len(trials)).ask()
      lock = self._lock(str(trial.number), wait=True)
      assert lock is not None
      return self._claimed(trial, lock)

  def views(self) -> list[View]:
    """Returns the trials, of those tried again the last try."""
    found: dict[Any, View] = {}
    for frozen in self._study.get_trials(deepcopy=False):
      reason = frozen.user_attrs.get('reason', '')
      state = {
        States.WAITING: 'waiting',
        States.RUNNING: 'running',
        States.COMPLETE: 'done',
        States.PRUNED: 'diverged' if reason else 'pruned',
        States.FAIL: 'failed',
      }[frozen.state]
      point = frozen.user_attrs.get('point', {})
      number = _first_number(frozen)
      # A point of a grid is one trial, whatever a damaged journal says.
      key = tuple(sorted(point.items())) if self._plan.search == 'grid' else number
      number = found[key].number if key in found else number
      found[key] = View(number, point, state, reason)
    return sorted(found.values(), key=lambda view: view.number)

  def total(self) -> int:
    """How many trials there will be."""
    return max(len(self.views()), self._plan.trials or 0)

  @property
  def metric(self) -> str | None:
    """The column that counts; None: it is not decided yet."""
    return self._plan.metric or self._study.user_attrs.get('metric')

  def decide_metric(self, column: str) -> str:
    """Returns the column that counts for all who work on the study: `column` if none does yet."""
    with self._locked():
      if self.metric is None:
        self._study.set_user_attr('metric', column)
    return self.metric or column

  def _claimed(self, trial: optuna.Trial, lock: IO[bytes]) -> Claim:
    drawn = self._space.draw(trial)
    point = trial.user_attrs.get('point') or drawn
    if 'point' not in trial.user_attrs:
      trial.set_user_attr('point', point)
    return Claim(trial, dict(point), lock)

  def _sampling(self, number: int) -> optuna.Study:
    self._study.sampler = _sampler(self._plan, number)
    return self._study

  def _open(self, storage: optuna.storages.JournalStorage) -> optuna.Study:
    identity = self._identity()
    text = json.dumps(identity, sort_keys=True)
    name = f'{self._plan.search}-{hashlib.sha256(text.encode()).hexdigest()[:12]}'
    for other in storage.get_all_studies():
      # Grids may grow: complete runs are found again by their folders.
      are_grids = self._plan.search == 'grid' and other.study_name.startswith('grid-')
      if are_grids or other.study_name == name:
        continue
      before = other.user_attrs.get('identity', {})
      changed = [_flag(key) for key in identity if before.get(key) != identity[key]]
      raise ValueError(
        f'--output_dir={self._folder} holds a search that differs in {", ".join(changed)}: give'
        ' what it was, or another folder.'
      )
    pruner: optuna.pruners.BasePruner = optuna.pruners.NopPruner()
    if self._plan.first_rung is not None:
      pruner = optuna.pruners.SuccessiveHalvingPruner(
        min_resource=self._plan.first_rung, reduction_factor=self._plan.factor
      )
    study = optuna.create_study(
      storage=storage, study_name=name, direction='maximize', pruner=pruner, load_if_exists=True
    )
    if 'identity' not in study.user_attrs:
      study.set_user_attr('identity', identity)
    return study

  def _check_metric(self) -> None:
    """Notes the metric where trials are compared by it; ValueError if they were by another.

    It is no part of the identity: studies of earlier versions did not note it, and go on.
    """
    before, now = self._study.user_attrs.get('metric'), self._plan.metric
    if now in (None, before) or not self._plan.compares:
      return
    trials = self._study.get_trials(deepcopy=False)
    if before is not None and any(t.values or t.intermediate_values for t in trials):
      raise ValueError(
        f'--output_dir={self._folder} holds a search whose trials are compared by {before}, found'
        f' --metric={now}: leave it out, or give another folder.'
      )
    self._study.set_user_attr('metric', now)

  def _identity(self) -> dict[str, Any]:
    """What makes it this study: what is varied, how, and what all runs share."""
    shared = {
      name: value
      for name, value in self._space.given.items()
      if name not in settings.HARMLESS or name in _COUNTED
    }
    plan = dataclasses.asdict(self._plan)
    del plan['trials']  # There may be more of them.
    del plan['metric']
    ranges = {name: dataclasses.asdict(r) for name, r in self._space.ranges.items()}
    identity = {
      **{name if name != 'seed' else 'search_seed': value for name, value in plan.items()},
      'grid': {name: list(values) for name, values in self._space.axes.items()},
      'range': ranges,
      'seeds': list(self._space.seeds),
      **{f'--{name}': value for name, value in shared.items()},
    }
    return dict(json.loads(json.dumps(identity)))

  def _check_points(self) -> None:
    """ValueError if a trial that is done has no point, or one that is not in the space."""
    for trial in self._study.get_trials(deepcopy=False):
      point = trial.user_attrs.get('point')
      if point is None and not trial.state.is_finished():
        continue  # Killed before it was written.
      if not isinstance(point, dict) or not self._space.has(point):
        raise ValueError(f'trial {trial.number} has the settings {point!r:.80}')

  def _queue(self, is_there: Callable[[int, Mapping[str, str]], bool]) -> None:
    """Queues the points of a grid, what failed before, and what is done but gone."""
    trials = self._study.get_trials(deepcopy=False)
    if self._plan.search == 'grid':
      queued = [trial.user_attrs.get('point') for trial in trials]
      for point in self._space.points():
        if point not in queued:  # A start before may have been killed among them.
          self._study.enqueue_trial(point, user_attrs={'point': point})
    last = {_first_number(trial): trial for trial in trials}
    for number, trial in last.items():
      point = trial.user_attrs.get('point', {})
      is_gone = trial.state == States.COMPLETE and not is_there(number, point)
      if trial.state == States.FAIL or is_gone:
        attributes = {'point': point, 'again': number}
        self._study.enqueue_trial(trial.params, user_attrs=attributes)

  @contextlib.contextmanager
  def _locked(self) -> Iterator[None]:
    with self._lock('study', wait=True):  # type: ignore[union-attr]
      yield

  def _lock(self, name: str, wait: bool) -> IO[bytes] | None:
    """Returns a file with its lock held, until it is closed or the process ends."""
    if name != 'study':
      name = f'{self._study.study_name}-{name}'
    file = open(os.path.join(self._folder, _LOCKS, name), 'ab')  # noqa: SIM115
    try:
      fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
      file.close()
      return None
    return file


def _flag(key: str) -> str:
  """The flag by which a part of a study's identity is given."""
  flag = {'factor': 'reduction_factor', 'seeds': 'grid=seed'}.get(key, key)
  return flag if flag.startswith('--') else f'--{flag}'


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
  """Drops the end of a line whose writer was killed, to which the next one would be joined.

  Raises:
    ValueError: If another line is no JSON: Optuna would find it only with the next one.
  """
  lock.acquire()  # Others may be writing.
  try:
    with open(path, 'r+b') as file:
      content = file.read()
      end = content.rfind(b'\n') + 1
      for line in content[:end].splitlines():
        json.loads(line)
      file.truncate(end)
  finally:
    lock.release()


def _first_number(trial: Any) -> int:
  return int(trial.user_attrs.get('again', trial.number))


def preview(space: search_space.Space, plan: Plan, number: int) -> list[dict[str, str]]:
  """Returns the first points that would be drawn; of tpe those that no result decides.

  Args:
    space: What is varied.
    plan: How.
    number: Of trials.
  """
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  if plan.search == 'tpe':
    number = min(number, _STARTUP)
  found = []
  for n in range(number):
    found.append(space.draw(optuna.create_study(sampler=_sampler(plan, n)).ask()))
  return found


def _sampler(plan: Plan, number: int) -> optuna.samplers.BaseSampler:
  """Trial `number` is drawn from a seed of its own: resumed, a search draws the same."""
  seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
  if plan.search == 'tpe':
    return optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
  return optuna.samplers.RandomSampler(seed=seed)
