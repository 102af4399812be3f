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
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import numpy as np
import optuna

from . import grid, search_space, settings

JOURNAL = 'study.journal'
_LOCKS = '.locks'
_STARTUP = 10  # Trials that tpe draws at random.
# Settings that may change from one start to the next though they are not harmless to a trial.
_COUNTED = ('rounds', 'rounds_per_evaluation')
_States = optuna.trial.TrialState


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
    metric: The column of metrics.csv that counts; None: the task's.
  """

  search: str
  trials: int | None = None
  seed: int = 0
  first_rung: int | None = None
  factor: int = 3
  metric: str | None = None

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
  """A trial that this process does; `close` leaves it to whoever comes next.

  Attributes:
    number: The trial's.
    point: Flag -> value, as text.
    close: Lets it go.
  """

  def __init__(
    self, trial: optuna.Trial, point: dict[str, str], lock: IO[bytes], over: dict[int, View]
  ):
    self._trial, self._over = trial, over
    self.number, self.point, self.close = trial.number, point, lock.close

  def should_prune(self, rounds: int, score: float) -> bool:
    """Reports the score after so many rounds; whether others leave it no room on the next rung."""
    if self.number in self._over:
      return False
    frozen = self._trial.study.get_trials(deepcopy=False)[self.number]
    if rounds not in frozen.intermediate_values:
      self._trial.report(score, rounds)
    return self._trial.should_prune()

  def finish(self, state: str, score: float | None = None, reason: str = '') -> None:
    """Records what came of it: a state as of `View`; what failed is for the next start.

    A trial that diverged is one that Optuna knows to be worse than all others.
    """
    if self.number in self._over:
      self._over[self.number] = View(self.number, self.point, state, reason)
    else:
      self._trial.set_user_attr('reason', reason)
      if state == 'done':
        self._trial.study.tell(self.number, score)
      elif state != 'failed':
        self._trial.study.tell(self.number, state=_States.PRUNED)
    self.close()


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
      ValueError: If the folder holds another search, or a damaged one.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    self._folder, self._space, self._plan = folder, space, plan
    self._over: dict[int, View] = {}  # Trials that were done, and are done again.
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
        self._queue()
        done = [v for v in self.views() if v.state not in ('waiting', 'running')]
        for view in done:  # Their folders hold runs of these settings, if any.
          space.runs(view.point, run_folder(folder, plan, view.number, view.point))
      self._failed = {view.number for view in done if view.state == 'failed'}
      for view in done:
        if view.state == 'done' and not is_there(view.number, view.point):
          self._over[view.number] = dataclasses.replace(view, state='waiting')

  def claim(self) -> Claim | None:
    """Returns a trial to do: one whose process has ended, one that waits, or a new one."""
    with self._locked():
      trials = self._study.get_trials(deepcopy=False)
      for frozen in trials:
        if self._is_open(frozen) and (lock := self._lock(str(frozen.number), wait=False)):
          # Its process may have finished it since they were read, and only then let the lock go.
          if self._is_open(self._study.get_trials(deepcopy=False)[frozen.number]):
            return self._claimed(frozen.number, lock)
          lock.close()
      is_more = self._plan.search != 'grid' and len(trials) < (self._plan.trials or 0)
      if not is_more and not any(t.state == _States.WAITING for t in trials):
        return None
      number = self._study.ask().number
      lock = self._lock(str(number), wait=True)
      assert lock is not None
      return self._claimed(number, lock)

  def views(self) -> list[View]:
    """Returns the trials."""
    found: dict[object, View] = {}
    for frozen in self._study.get_trials(deepcopy=False):
      reason = frozen.user_attrs.get('reason', '')
      state = {
        _States.WAITING: 'waiting',
        _States.RUNNING: 'failed' if reason else 'running',
        _States.COMPLETE: 'done',
        _States.PRUNED: 'diverged' if reason else 'pruned',
        _States.FAIL: 'failed',
      }[frozen.state]
      point = frozen.user_attrs.get('point', {})
      # A point of a grid is one trial, whatever a damaged journal says.
      key = grid.label(point) if self._plan.search == 'grid' else frozen.number
      view = View(frozen.number, point, state, reason)
      found.setdefault(key, self._over.get(frozen.number, view))
    return list(found.values())

  def total(self) -> int:
    """How many trials there will be."""
    return max(len(self.views()), self._plan.trials or 0)

  def _is_open(self, trial: optuna.trial.FrozenTrial) -> bool:
    """Whether a trial has begun and is not done; what failed is tried again by the next start."""
    if trial.number in self._over:
      return self._over[trial.number].state == 'waiting'
    is_new = not trial.user_attrs.get('reason')
    return trial.state == _States.RUNNING and (is_new or trial.number in self._failed)

  def _claimed(self, number: int, lock: IO[bytes]) -> Claim:
    self._failed.discard(number)
    self._study.sampler = _sampler(self._plan, number)
    study_id = self._storage.get_study_id_from_name(self._study.study_name)
    trial_id = self._storage.get_trial_id_from_study_id_trial_number(study_id, number)
    trial = optuna.Trial(self._study, trial_id)
    if number not in self._over:
      drawn = self._space.draw(trial)
      trial.set_user_attr('point', trial.user_attrs.get('point') or drawn)
      trial.set_user_attr('reason', '')
    return Claim(trial, dict(trial.user_attrs['point']), lock, self._over)

  def _open(self) -> optuna.Study:
    identity = self._identity()
    text = json.dumps(identity, sort_keys=True)
    name = f'{self._plan.search}-{hashlib.sha256(text.encode()).hexdigest()[:12]}'
    for other in self._storage.get_all_studies():
      # Grids may change: complete runs are found again by their folders.
      are_grids = self._plan.search == 'grid' and other.study_name.startswith('grid-')
      if are_grids or other.study_name == name:
        continue
      before = other.user_attrs.get('identity', {})
      changed = [flag for flag in identity if before.get(flag) != identity[flag]]
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
      storage=self._storage,
      study_name=name,
      direction='maximize',
      pruner=pruner,
      load_if_exists=True,
    )
    if 'identity' not in study.user_attrs:
      study.set_user_attr('identity', identity)
    return study

  def _identity(self) -> dict[str, Any]:
    """What makes it this study, by flags: what is varied, how, and what all runs share."""
    plan, space = self._plan, self._space
    compares = plan.search == 'tpe' or plan.first_rung is not None
    identity = {
      '--search': plan.search,
      '--search_seed': plan.seed,
      '--first_rung': plan.first_rung,
      '--reduction_factor': plan.factor,
      '--metric': plan.metric if compares else None,
      '--grid': {name: list(values) for name, values in space.axes.items()},
      '--grid=seed': list(space.seeds),
      '--range': {name: dataclasses.asdict(r) for name, r in space.ranges.items()},
      **{
        f'--{name}': value
        for name, value in space.given.items()
        if name not in settings.CHANGE_NO_NUMBER or name in _COUNTED
      },
    }
    return dict(json.loads(json.dumps(identity)))

  def _queue(self) -> None:
    """Queues the points of a grid; a start before may have been killed among them."""
    if self._plan.search != 'grid':
      return
    points = self._space.points()
    queued = [t.user_attrs.get('point') for t in self._study.get_trials(deepcopy=False)]
    if strangers := [point for point in queued if point not in points]:
      raise ValueError(f'a trial has the settings {strangers[0]!r:.80}')
    for point in points:
      if point not in queued:
        self._study.enqueue_trial(point, user_attrs={'point': point})

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


def run_folder(folder: str, plan: Plan, number: int, point: grid.Point) -> str:
  """The folder of a trial's run, in a sweep's; with seeds, ',seed=SEED' follows."""
  return os.path.join(folder, grid.label(point) if plan.search == 'grid' else f'trial={number}')


def preview(space: search_space.Space, plan: Plan) -> list[dict[str, str]]:
  """Returns the first points that would be drawn; of tpe those that no result decides."""
  optuna.logging.set_verbosity(optuna.logging.ERROR)
  number = min(plan.trials or 0, _STARTUP) if plan.search == 'tpe' else plan.trials or 0
  studies = [optuna.create_study(sampler=_sampler(plan, n)) for n in range(number)]
  return [space.draw(study.ask()) for study in studies]


def _sampler(plan: Plan, number: int) -> optuna.samplers.BaseSampler:
  """Trial `number` is drawn from a seed of its own: resumed, a search draws the same."""
  seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
  if plan.search == 'tpe':
    return optuna.samplers.TPESampler(n_startup_trials=_STARTUP, seed=seed, constant_liar=True)
  return optuna.samplers.RandomSampler(seed=seed)
