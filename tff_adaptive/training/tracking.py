"""What the callbacks of experiment trackers share: a tracker that fails ends no run."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive.training import callbacks

if TYPE_CHECKING:
  from tff_adaptive.training.loop import TrainingResult

PROJECT = 'tff-adaptive'


class TrackingError(ValueError):
  """A tracker with which a run cannot be begun."""


class Tracker(callbacks.Callback):
  """Passes rounds on to a tracker, while it takes them.

  A tracker that cannot be begun with ends the run before its first round. One that fails later is
  reported once and left alone: the rounds are in metrics.csv in any case.
  """

  service = ''  # The tracker's name.

  def __init__(self) -> None:
    self._say: Callable[[str], None] = print
    self._result: TrainingResult | None = None
    self._is_open = False

  def open(self, run: callbacks.RunInfo) -> None:
    """Begins the run there, or goes on with it."""
    raise NotImplementedError

  def log(self, step: int, values: Mapping[str, float]) -> None:
    """Passes the columns of round `step` on."""
    raise NotImplementedError

  def finish(self, result: 'TrainingResult | None') -> None:
    """Ends the run there; without a result it failed."""
    raise NotImplementedError

  def begin(self, run: callbacks.RunInfo) -> None:
    """Opens the tracker's run.

    Raises:
      TrackingError: In one line, if that fails.
    """
    self._say = run.say
    try:
      self.open(run)
    except Exception as error:  # Of whatever kind trackers raise.
      raise TrackingError(f'{self.service} cannot be logged to: {_short(error)}') from error
    self._is_open = True

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Passes a row on."""
    values = {name: float(value) for name, value in row.items() if name != 'round'}
    self._try(lambda: self.log(int(row['round']), values))

  def end(self, result: 'TrainingResult') -> None:
    """Notes that the run did not fail."""
    self._result = result

  def close(self) -> None:
    """Ends the tracker's run."""
    self._try(lambda: self.finish(self._result))
    self._is_open = False

  def _try(self, action: Callable[[], None]) -> None:
    if not self._is_open:
      return
    try:
      action()
    except Exception as error:
      self._is_open = False
      self._say(
        f'{self.service} takes no more rows ({_short(error)}); all rounds are in metrics.csv.'
      )


def _short(error: Exception) -> str:
  return f'{type(error).__name__}: {" ".join(str(error).split()):.200}'
