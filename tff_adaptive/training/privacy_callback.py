"""What a run records of how private it is."""

from collections.abc import Mapping
from typing import Any, Protocol

from tff_adaptive.training import callbacks


class Accountant(Protocol):
  """What is asked of an accountant: `aggregation.SampledGaussian` is one."""

  @property
  def noise_multiplier(self) -> float:
    """Noise on a sum of updates, in clipping norms."""

  def epsilons(self, rounds: int, delta: float) -> Mapping[str, float]:
    """Column -> epsilon after so many rounds."""


class PrivacyCallback(callbacks.Callback):
  """Columns `epsilon` and `epsilon_rdp` of evaluated rounds, and `privacy` in the summary."""

  def __init__(self, accountant: Accountant, delta: float, rounds_per_evaluation: int):
    """Creates the callback.

    Args:
      accountant: Gives epsilon by rounds.
      delta: At this delta.
      rounds_per_evaluation: As in `TrainingConfig`.
    """
    self._accountant, self._delta, self._every = accountant, delta, rounds_per_evaluation
    self._last = self._round = 0

  def begin(self, run: callbacks.RunInfo) -> None:
    """Takes the number of rounds."""
    self._last = run.rounds

  def round_begin(self, number: int) -> None:
    """Takes the round's number."""
    self._round = number

  def columns(self) -> Mapping[str, float]:
    """Epsilon after this round, if it is evaluated."""
    if self._round % self._every and self._round != self._last:
      return {}
    return self._accountant.epsilons(self._round, self._delta)

  def summary(self, rounds: int) -> Mapping[str, Any]:
    """Epsilon of the run, with all that it depends on."""
    return {
      'privacy': {
        'neighbours': 'one client is replaced',
        'noise_multiplier': self._accountant.noise_multiplier,
        'delta': self._delta,
        **self._accountant.epsilons(rounds, self._delta),
      }
    }
