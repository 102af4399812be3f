"""Writes a run's metrics for TensorBoard, without TensorFlow."""

import io
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import record_writer

from tff_adaptive.runs.errors import saving
from tff_adaptive.training import callbacks

_GROUPS = ('train', 'validation', 'inference', 'clients', 'seconds')


class EventLog(callbacks.Callback):
  """A callback that writes each round's columns as scalars in TensorBoard's event format."""

  def __init__(self, folder: str):
    """Sets the folder of the event files, which `begin` creates if necessary."""
    self._folder = folder
    self._file: Any = None

  def begin(self, run: callbacks.RunInfo) -> None:
    """Starts an event file. TensorBoard takes rounds from `run.first_round` on from this file."""
    name = f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}'
    with saving(self._folder):
      os.makedirs(self._folder, exist_ok=True)
    self._path = os.path.join(self._folder, name)
    with saving(self._path):
      # Without a buffer, so that TensorBoard shows each round at once.
      self._file = open(self._path, 'wb', buffering=0)  # noqa: SIM115
    # The first record of a file names the version of the format.
    self._write(event_pb2.Event(file_version='brain.Event:2'))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(event_pb2.Event(step=run.first_round, session_log=start))

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Writes one round's row; its value of `round` is TensorBoard's step."""
    values = [
      summary_pb2.Summary.Value(tag=tag(name), simple_value=float(value))
      for name, value in row.items()
      if name != 'round'
    ]
    self._write(event_pb2.Event(step=int(row['round']), summary=summary_pb2.Summary(value=values)))

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()

  def _write(self, event: event_pb2.Event) -> None:
    event.wall_time = time.time()
    record = io.BytesIO()
    record_writer.RecordWriter(record).write(event.SerializeToString())
    with saving(self._path):
      os.stat(self._path)  # It may have been removed: an open file would not notice.
      self._file.write(record.getvalue())


def tag(column: str) -> str:
  """Returns the tag of a column of metrics.csv, such as train/loss for train_loss."""
  group, _, rest = column.partition('_')
  if rest and group in _GROUPS:
    return f'{group}/{rest}'
  return column
