"""What a run shows and records of the workers that train its clients."""

import collections
import time
from collections.abc import Mapping
from typing import Any, Protocol

from tff_adaptive.training import callbacks

_ROUNDS_OF_RATE = 50
_SECONDS_BETWEEN_LINES = 30.0


class Context(Protocol):
  """What is asked of an execution context with workers: `engine.RayContext` is one."""

  @property
  def workers(self) -> int:
    """How many there are."""

  def announce(self, occasion: str, report: Any) -> None:
    """Says what the next computations are for, and who takes lines about the workers."""

  def counters(self) -> Mapping[str, float]:
    """What has been done since the beginning."""


class RayCallback(callbacks.Callback):
  """Announces rounds to the workers; their counters are columns of the round.

  These are seconds_waiting (for the workers), bytes_to_workers, bytes_from_workers and
  subrounds_retried. A line now and then says how many workers there are, and how fast.
  """

  def __init__(self, context: Context):
    self._context = context
    self._before: Mapping[str, float] = {}
    self._run: callbacks.RunInfo | None = None
    self._rounds: collections.deque[tuple[float, float]] = collections.deque(maxlen=_ROUNDS_OF_RATE)
    self._last_line = time.monotonic()

  def begin(self, run: callbacks.RunInfo) -> None:
    """Says how many workers there will be; takes the run's way to show a line."""
    self._run = run
    run.say(f'Starting {self._workers()}.')

  def round_begin(self, number: int) -> None:
    """Announces the round."""
    assert self._run is not None
    self._before = self._context.counters()
    self._context.announce(f'round {number}', self._run.say)

  def columns(self) -> Mapping[str, float]:
    """What the round has added to the counters."""
    return {name: now - self._before[name] for name, now in self._context.counters().items()}

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Says, now and then, how fast the workers are."""
    if not row.get('seconds_round'):
      return
    self._rounds.append((row['clients'], row['seconds_round']))
    if time.monotonic() - self._last_line < _SECONDS_BETWEEN_LINES:
      return
    assert self._run is not None
    self._last_line = time.monotonic()
    clients, seconds = map(sum, zip(*self._rounds))
    self._run.say(f'{self._workers()}, {clients / seconds:.1f} clients/s')

  def _workers(self) -> str:
    count = self._context.workers
    return f'{count} worker{"" if count == 1 else "s"}'
