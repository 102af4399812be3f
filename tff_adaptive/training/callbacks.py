"""What may look on while a run goes on, and add to its rows."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
  from tff_adaptive.training.loop import TrainingResult


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
