"""Callbacks that observe a run and may add columns to its rows."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_adaptive.training import protocols


@dataclasses.dataclass(frozen=True)
class RunInfo:
  """Facts about a run, which `Callback.begin` gets when the run begins or is resumed.

  Attributes:
    output_dir: The run's folder; None for a run that writes nothing.
    first_round: The first round to be recorded: 0, the initial model, for a new run. For a run that
      has lost its rows it is that of the checkpoint, which is evaluated.
    rounds: Number of rounds of the whole run.
    say: A function that shows a line of text to the user.
  """

  output_dir: str | None
  first_round: int
  rounds: int
  say: Callable[[str], None]


class Callback:
  """The base class of callbacks, whose methods `training.train` calls. By default they do nothing.

  Callbacks are called in the order in which `train` got them, from the thread that trains. If one
  raises an error, the finished rounds are saved and the run ends.

  Attributes:
    may_load_ahead: Whether a round's clients may be loaded before `round_begin` is called, in the
      background while the round before it trains. It has an effect in a class that overrides
      `round_begin`. True is quicker, if `round_begin` does not change what clients' data are.
  """

  may_load_ahead = False

  def begin(self, run: RunInfo) -> None:
    """Called once, when the checkpoint file is locked and the run can start."""

  def round_begin(self, number: int) -> None:
    """Called before a round's clients are loaded; rounds count from 1.

    It may change the data that `clients.load` returns, for concept drift for example. If these
    depend on the number of the round only, a resumed run has the same data.
    """

  def columns(self) -> Mapping[str, float]:
    """Returns columns, name -> number, to add to the row of the round that was just trained."""
    return {}

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Called with each recorded row, including that of round 0.

    It must not change clients' data, because the next round's may be loaded already; see
    `round_begin`.

    Args:
      row: The values in metrics.csv by column name. Evaluated rounds have further columns.
    """

  def checkpoint(self, round_number: int) -> None:
    """Called after the state of a round has been saved."""

  def summary(self, rounds: int) -> Mapping[str, Any]:
    """Returns entries to add to the summary.json of a run that has done `rounds` rounds."""
    del rounds
    return {}

  def end(self, result: protocols.TrainingResult) -> None:
    """Called after the summary is written, but not after an error."""

  def close(self) -> None:
    """Called last, after an error too, if `begin` was called."""


class PrivacyCallback(Callback):
  """A callback that adds the column `epsilon` to evaluated rounds, and `privacy` to the summary."""

  may_load_ahead = True

  def __init__(
    self, accountant: Any, delta: float, rounds_per_evaluation: int, noise_seed: int | None = None
  ):
    """Creates the callback.

    Args:
      accountant: An `aggregation.Accountant`, which computes epsilon from the number of rounds.
      delta: The delta for which epsilon is computed.
      rounds_per_evaluation: The same as in `TrainingConfig`.
      noise_seed: The same as in `aggregation.Cohort`; None if the noise's seed is secret.
    """
    self._accountant = accountant
    self._delta = delta
    self._every = rounds_per_evaluation
    self._noise = 'noise is drawn from a secret, which the checkpoint has'
    if noise_seed is not None:
      self._noise = 'noise is reproducible: this epsilon protects nobody who knows the seed'
    self._last = 0
    self._round = 0

  def begin(self, run: RunInfo) -> None:
    self._last = run.rounds

  def round_begin(self, number: int) -> None:
    self._round = number

  def columns(self) -> Mapping[str, float]:
    # The last round is evaluated, whatever its number.
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
  """A callback that names each round in messages of Ray's workers, and adds columns to its row.

  The columns are the round's seconds_waiting (for workers), bytes_to_workers, bytes_from_workers
  and subrounds_retried (parts of the cohort that were given to a worker again).
  """

  may_load_ahead = True

  def __init__(self, context: Any):
    """Creates the callback; `context` is the run's `engine.RayContext`."""
    self._context = context
    self._before: Mapping[str, float] = {}
    self._say: Callable[[str], None] = print

  def begin(self, run: RunInfo) -> None:
    self._say = run.say
    count = self._context.workers
    words = '1 worker' if count == 1 else f'{count} workers'
    run.say(f'Starting {words}.')

  def round_begin(self, number: int) -> None:
    # They count since the context was created.
    self._before = self._context.counters()
    self._context.announce(f'round {number}', self._say)

  def columns(self) -> Mapping[str, float]:
    return {name: now - self._before[name] for name, now in self._context.counters().items()}


def let_load_ahead(callbacks: Sequence[Callback]) -> bool:
  """Returns whether clients may be loaded before `round_begin`; see `Callback.may_load_ahead`."""
  return all(c.may_load_ahead or _keeps_round_begin(c) for c in callbacks)


def _keeps_round_begin(callback: Callback) -> bool:
  """Returns whether a callback has the `round_begin` of the base class, which does nothing."""
  # A function that was set on the object itself has no `__func__`, and is another one.
  return getattr(callback.round_begin, '__func__', None) is Callback.round_begin
