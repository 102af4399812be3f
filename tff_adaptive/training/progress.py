"""Shows the progress of a run: a live line on a terminal, plain lines elsewhere."""

import collections
import contextlib
import datetime
import io
import math
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import rich.console
import rich.progress
import rich.table

from tff_adaptive._utils import streams
from tff_adaptive.training import callbacks

_SECONDS_BETWEEN_LINES = 10.0
_ROUNDS_OF_RATE = 50  # The number of recent rounds whose speed is shown.
_WIDE = 110  # A terminal with this number of columns has room for a bar.


def _may_fail() -> contextlib.AbstractContextManager[None]:
  """A context that ignores that the terminal is gone or lacks a letter; the run goes on."""
  return contextlib.suppress(OSError, ValueError)


class Progress(callbacks.Callback):
  """A callback that shows the round, its loss and metric, rounds per second and the time left."""

  def __init__(self, *, metric: str = 'accuracy', stream: TextIO | None = None):
    """Creates the display; nothing is shown yet.

    Args:
      metric: The metric to show next to the loss.
      stream: The stream to write to; standard error by default.
    """
    self._stream = stream or sys.stderr or io.StringIO()  # A daemon may have no standard error.
    self._metric = metric
    self._rounds = 0
    self._start = 0
    # One more than rounds, because a rate needs the times at both ends.
    self._times: collections.deque[float] = collections.deque(maxlen=_ROUNDS_OF_RATE + 1)
    self._last_line = -math.inf
    self._validation = ''
    self._bar: rich.progress.Progress | None = None

  def begin(self, run: callbacks.RunInfo) -> None:
    """Begins to show the rounds of a run."""
    self._rounds = run.rounds
    # The rounds that are done; round 0 of a new run is no round of training.
    self._start = max(0, run.first_round - 1)
    if self._stream.isatty():
      console = rich.console.Console(file=self._stream)
      whole = rich.table.Column(no_wrap=True, min_width=len(f'round {run.rounds}/{run.rounds}'))
      columns: list[rich.progress.ProgressColumn] = [
        rich.progress.TextColumn('round {task.completed}/{task.total}', table_column=whole)
      ]
      if console.width >= _WIDE:
        columns.append(rich.progress.BarColumn(bar_width=12))
      columns.append(rich.progress.TextColumn('{task.fields[text]}'))
      self._bar = rich.progress.Progress(*columns, console=console)
      self._task = self._bar.add_task('', total=run.rounds, completed=self._start, text='')
      with _may_fail():
        self._bar.start()
    if self._start:
      self.message(f'Resumed after round {self._start}.')

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Shows a finished round; `row` is its row of metrics.csv."""
    round_number = int(row['round'])
    text = self._text(row, round_number)
    if self._bar is not None:
      with _may_fail():
        self._bar.update(self._task, completed=round_number, text=text)
      return
    now = time.monotonic()
    is_due = now - self._last_line >= _SECONDS_BETWEEN_LINES
    if is_due or round_number in (self._start + 1, self._rounds):
      self._last_line = now
      self.message(f'round {round_number}/{self._rounds}  {text}')

  def message(self, line: str) -> None:
    """Writes a line of text; on a terminal it appears above the live line."""
    if self._bar is not None:
      with _may_fail():
        self._bar.console.print(line, markup=False, highlight=False)
      return
    streams.write(self._stream, line + '\n')

  def close(self) -> None:
    """Ends the display; the text on the screen stays."""
    if self._bar is not None:
      with _may_fail():
        self._bar.stop()

  def _text(self, row: Mapping[str, Any], round_number: int) -> str:
    parts = []
    if 'train_loss' in row:
      parts.append(f'loss {row["train_loss"]:.4f}')
    train = f'train_{self._metric}'
    validation = f'validation_{self._metric}'
    if train in row and self._metric != 'loss':
      parts.append(f'{self._metric} {row[train]:.4f}')
    if validation in row:
      self._validation = f'val {row[validation]:.4f}'
    if self._validation:
      parts.append(self._validation)
    if round_number > self._start:
      self._times.append(time.monotonic())
    if len(self._times) > 1:  # The first round also traces graphs, so its speed is not shown.
      rate = (len(self._times) - 1) / max(self._times[-1] - self._times[0], 1e-9)
      parts.append(f'{rate:.2f}/s')
      left = datetime.timedelta(seconds=int((self._rounds - round_number) / rate + 0.5))
      parts.append(f'{left} left')
    return '  '.join(parts)
