"""What may look on while a run goes on, and add to its rows."""

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  from tff_adaptive.training.loop import TrainingResult

_ROUNDS_OF_RATE = 50
_SECONDS_BETWEEN_LINES = 30.0


@dataclasses.dataclass(frozen=True)
class RunInfo:
  """A run that is about to begin, or to go on.

  Attributes:
    output_dir: The run's folder; None for a run that writes nothing.
    first_round: The first round to be recorded: 0, the initial model, for a new run.
    rounds: Rounds of the whole run.
    say: Shows the user a line.
  """

  output_dir: str | None
  first_round: int
  rounds: int
  say: Callable[[str], None]


class Callback:
  """Methods that `training.train` calls; each does nothing here.

  They are called from the thread that trains, in the order in which the callbacks were given. An
  error that one raises ends the run, after the rounds that are done have been saved.
  """

  def begin(self, run: RunInfo) -> None:
    """Called once: the checkpoint file is held and the run can go on."""

  def round_begin(self, number: int) -> None:
    """Called before a round's clients are loaded; rounds count from 1."""

  def columns(self) -> Mapping[str, float]:
    """Returns further columns of this round's row; called after the process has run."""
    return {}

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Called with a round's row once it is recorded; also with that of round 0.

    Args:
      row: Column -> number, with the evaluation's columns if the round was evaluated.
    """

  def client_values(self, number: int, values: Mapping[str, np.ndarray]) -> None:
    """Called with the values of each client, where clients were evaluated one by one.

    Args:
      number: Rounds done.
      values: What was measured -> float64 [clients]; NaN where there was nothing to measure.
    """

  def checkpoint(self, round_number: int) -> None:
    """Called after the state of a round has been saved."""

  def summary(self, rounds: int) -> Mapping[str, Any]:
    """Returns what is to stand in the summary besides, after so many rounds."""
    del rounds
    return {}

  def end(self, result: 'TrainingResult') -> None:
    """Called once the summary is written; not after an error."""

  def close(self) -> None:
    """Called last, after an error too, if `begin` was called."""


class PrivacyCallback(Callback):
  """The column `epsilon` of evaluated rounds, and `privacy` in the summary."""

  def __init__(
    self,
    accountant: Any,
    delta: float,
    rounds_per_evaluation: int,
    noise_seed: int | None = None,
  ):
    """Creates the callback.

    Args:
      accountant: Gives epsilon by rounds: an `aggregation.Accountant`.
      delta: At this delta.
      rounds_per_evaluation: As in `TrainingConfig`.
      noise_seed: As in `aggregation.Cohort`.
    """
    self._accountant, self._delta, self._every = accountant, delta, rounds_per_evaluation
    self._noise = 'noise is drawn from a secret, which the checkpoint has'
    if noise_seed is not None:
      self._noise = 'noise is reproducible: this epsilon protects nobody who knows the seed'
    self._last = self._round = 0

  def begin(self, run: RunInfo) -> None:
    self._last = run.rounds

  def round_begin(self, number: int) -> None:
    self._round = number

  def columns(self) -> Mapping[str, float]:
    if self._round % self._every and self._round != self._last:
      return {}
    return {'epsilon': self._accountant.epsilon(self._round, self._delta)}

  def summary(self, rounds: int) -> Mapping[str, Any]:
    return {
      'privacy': {
        'neighbours': 'one client is replaced',
        'noise': self._noise,
        'noise_multiplier': self._accountant.noise_multiplier,
        'accountant': self._accountant.method,
        'delta': self._delta,
        'epsilon': self._accountant.epsilon(rounds, self._delta),
      }
    }


class RayCallback(Callback):
  """Announces rounds to the workers; their counters are columns of the round.

  These are seconds_waiting (for the workers), bytes_to_workers, bytes_from_workers and
  subrounds_retried. A line now and then says how many workers there are, and how fast.
  """

  def __init__(self, context: Any):
    """Takes an execution context with workers: an `engine.RayContext`."""
    self._context = context
    self._before: Mapping[str, float] = {}
    self._say: Callable[[str], None] = print
    self._rounds: collections.deque[tuple[float, float]] = collections.deque(maxlen=_ROUNDS_OF_RATE)
    self._last_line = time.monotonic()

  def begin(self, run: RunInfo) -> None:
    self._say = run.say
    run.say(f'Starting {self._workers()}.')

  def round_begin(self, number: int) -> None:
    self._before = self._context.counters()
    self._context.announce(f'round {number}', self._say)

  def columns(self) -> Mapping[str, float]:
    return {name: now - self._before[name] for name, now in self._context.counters().items()}

  def round_end(self, row: Mapping[str, Any]) -> None:
    if not row.get('seconds_round'):
      return
    self._rounds.append((row['clients'], row['seconds_round']))
    if time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
      self._last_line = time.monotonic()
      clients, seconds = map(sum, zip(*self._rounds))
      self._say(f'{self._workers()}, {clients / seconds:.1f} clients/s')

  def _workers(self) -> str:
    count = self._context.workers
    return f'{count} worker{"" if count == 1 else "s"}'
