"""Does the trials of a study: which run is next, what its result means for its trial."""

import dataclasses
import math
import os
from collections.abc import Callable

from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import run as run_lib, summary

from . import flags, run_folder, study, worker
from .settings import Settings

LOGS = 'logs'
_STOPS = 4


@dataclasses.dataclass
class Active:
  """A trial that is being done here.

  Attributes:
    claim: The trial.
    runs: Its runs, one for each seed.
    rungs: The rounds at which it is compared, those it has passed left out; the last are all.
    pending: Runs that have not begun on the way to the next of them.
    at_work: How many have.
    kind: 'diverged' or 'failed' if a run did.
    reason: Why.
    stops: How often somebody else has stopped one.
  """

  claim: study.Claim
  runs: list[Settings]
  rungs: list[int]
  pending: list[Settings] = dataclasses.field(default_factory=list)
  at_work: int = 0
  kind: str = ''
  reason: str = ''
  stops: int = 0

  @property
  def last_round(self) -> int | None:
    """Where its runs end for now; None: where their settings say."""
    return self.rungs[0] if len(self.rungs) > 1 else None


Ticket = tuple[Active, Settings]


class Search:
  """The trials of a study, as jobs for workers.

  A run is as good as the mean of the metric over its last 100 rounds, as the table shows; a trial
  as the mean of its runs.
  """

  def __init__(
    self,
    trials: study.Study,
    prepare: Callable[[study.Claim], tuple[list[Settings], list[int]]],
    folder: str,
    say: Callable[[str], None],
  ):
    """Creates it.

    Args:
      trials: The study.
      prepare: Returns a trial's runs and the rounds at which it is compared.
      folder: The sweep's.
      say: Shows the user a line.
    """
    self._study, self._prepare, self._folder = trials, prepare, folder
    self._say = say
    self._active: list[Active] = []

  def next(self) -> tuple[Ticket, worker.Job, tuple[object, ...] | None] | None:
    """Returns the next run to begin; None: there is none now."""
    while True:
      for active in self._active:
        if active.pending:
          return self._job(active, active.pending.pop(0))
      claim = self._study.claim()
      if claim is None:
        return None
      all_runs, rungs = self._prepare(claim)
      active = Active(claim, all_runs, rungs)
      self._active.append(active)
      self._refill(active)

  def done(self, ticket: Ticket, answer: worker.Answer, is_ending: bool = False) -> None:
    """Takes the result of a run.

    Args:
      ticket: The run's.
      answer: What became of it.
      is_ending: Whether the command ends: a run that was stopped was stopped by it.
    """
    active, settings = ticket
    active.at_work -= 1
    if answer.kind == 'stopped' and is_ending:
      return  # The trial stays as it is, for whoever goes on.
    if answer.kind == 'stopped':  # By somebody else, who sent its process a signal.
      active.stops += 1
      if active.stops < _STOPS:
        self._say(f'{settings.output_dir}: its process was asked to end; it goes on')
        active.pending.append(settings)
        return
      answer = worker.Answer('failed', f'its process was asked to end {_STOPS} times.')
    if answer.kind != 'done':
      active.kind = 'failed' if 'failed' in (active.kind, answer.kind) else answer.kind
      active.reason = answer.reason
      self._say(f'{settings.output_dir}: {answer.kind}: {answer.reason}')
    if not active.pending and not active.at_work:
      self._advance(active)

  def _job(
    self, active: Active, settings: Settings
  ) -> tuple[Ticket, worker.Job, tuple[object, ...] | None]:
    active.at_work += 1
    name = os.path.basename(settings.output_dir)
    log = os.path.abspath(os.path.join(self._folder, LOGS, f'{name}.log'))
    job = worker.Job(flags.command_line(settings.given), log, active.last_round)
    return (active, settings), job, worker.process_key(settings)

  def _refill(self, active: Active) -> None:
    """Names the runs to do up to the trial's next rung; those that are there already are not."""
    for settings in active.runs:
      if run_folder.is_complete(settings.output_dir, settings.rounds):
        if len(active.rungs) == 1:
          self._say(f'{settings.output_dir}: complete already')
      elif not _has_rounds(settings.output_dir, active.last_round):
        active.pending.append(settings)
    if not active.pending:
      self._advance(active)

  def _advance(self, active: Active) -> None:
    """Compares a trial whose runs are at its next rung, and ends it or lets it go on."""
    rounds = active.rungs[0]
    score = math.nan
    if not active.kind:
      try:
        found = [read_whole(settings.output_dir, rounds) for settings in active.runs]
      except ValueError as error:  # Somebody else wrote there.
        active.kind, active.reason = 'failed', str(error)
      else:
        score = sum(self._score(run, rounds) for run in found) / len(found)
        if not math.isfinite(score):
          active.kind, active.reason = 'diverged', f'{self._study.metric} is not finite.'
    if active.kind:
      self._finish(active, active.kind, None)
    elif len(active.rungs) == 1:
      self._finish(active, 'done', score)
    elif active.claim.should_prune(rounds, score):
      self._finish(active, 'pruned', score)
    else:
      active.rungs.pop(0)
      self._refill(active)

  def _finish(self, active: Active, state: str, score: float | None) -> None:
    self._active.remove(active)
    active.claim.finish(state, score, active.reason)

  def _score(self, run: run_lib.Run, rounds: int) -> float:
    """Returns how good a run was after so many rounds: higher is better."""
    metric = self._study.metric or self._study.decide_metric(tables.default_metric([run]))
    value = value_of(run, metric, rounds)
    if value is None:
      raise ValueError(f'{scores.no_values(run, metric)} The runs are saved.')
    return scores.sign(metric) * value


def stopped(answer: worker.Answer) -> worker.Answer:
  """What a run's answer means after a signal: one that had not begun ends without saving."""
  return answer if answer.kind in ('done', 'diverged') else worker.Answer('stopped')


def read_whole(folder: str, rounds: int) -> run_lib.Run:
  """Reads a run that has done so many rounds.

  Raises:
    ValueError: If it cannot be read or lacks a row: of the rest a mean would be another.
  """
  way_out = 'bring back a copy of the file, or remove the folder, and the run is done again.'
  try:
    found = run_lib.load_run(folder)
  except ValueError as error:
    raise ValueError(f'{str(error).rstrip(".")}: {way_out}') from None
  there = {int(row['round']) for row in found.rows}
  missing = next((t for t in range(rounds + 1) if t not in there), None)
  if missing is not None:
    raise ValueError(f'{folder} lacks round {missing} in metrics.csv: {way_out}')
  return found


def value_of(run: run_lib.Run, metric: str, rounds: int) -> float | None:
  """Returns the mean of a metric over the 100 rounds up to a round; None without any value."""
  first = max(0, rounds - summary.WINDOW)
  values = [value for t, value in run.curve(metric).items() if first < t <= rounds]
  return sum(values) / len(values) if values else None


def _has_rounds(folder: str, rounds: int | None) -> bool:
  if rounds is None:
    return False
  try:
    return bool(run_lib.load_run(folder).rows[-1]['round'] >= rounds)
  except ValueError:
    return False
