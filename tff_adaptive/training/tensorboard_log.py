"""Writes a run's metrics for TensorBoard, without TensorFlow."""

import io
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import record_writer

from tff_adaptive.runs.errors import saving
from tff_adaptive.training import callbacks

_GROUPS = ('train', 'validation', 'inference', 'clients', 'seconds')
_BUCKETS = 30


class EventLog(callbacks.Callback):
  """Scalars by round, in TensorBoard's event format."""

  def __init__(self, folder: str):
    """Sets the folder of the event files, which is created if necessary."""
    self._folder = folder
    self._file: Any = None

  def begin(self, run: callbacks.RunInfo) -> None:
    """Starts a new event file, so that TensorBoard drops later rounds of earlier files."""
    name = f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}'
    with saving(self._folder):
      os.makedirs(self._folder, exist_ok=True)
    self._path = os.path.join(self._folder, name)
    with saving(self._path):
      self._file = open(self._path, 'wb', buffering=0)  # noqa: SIM115
    self._write(event_pb2.Event(file_version='brain.Event:2'))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(event_pb2.Event(step=run.first_round, session_log=start))

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Writes one row; its `round` is the step."""
    self._values(
      int(row['round']), {k: {'simple_value': float(v)} for k, v in row.items() if k != 'round'}
    )

  def client_values(self, number: int, values: Mapping[str, np.ndarray]) -> None:
    """Writes a histogram of each value."""
    finite = {name: array[np.isfinite(array)] for name, array in values.items()}
    self._values(number, {k: {'histo': _histogram(v)} for k, v in finite.items() if len(v)})

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()

  def _values(self, step: int, values: Mapping[str, Mapping[str, Any]]) -> None:
    found = [summary_pb2.Summary.Value(tag=tag(name), **value) for name, value in values.items()]
    self._write(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=found)))

  def _write(self, event: event_pb2.Event) -> None:
    event.wall_time = time.time()
    record = io.BytesIO()
    record_writer.RecordWriter(record).write(event.SerializeToString())
    with saving(self._path):
      os.stat(self._path)  # It may have been removed: an open file would not notice.
      self._file.write(record.getvalue())


def _histogram(values: np.ndarray) -> summary_pb2.HistogramProto:
  counts, edges = np.histogram(values, bins=_BUCKETS)
  return summary_pb2.HistogramProto(
    min=values.min(),
    max=values.max(),
    num=len(values),
    sum=values.sum(),
    sum_squares=np.square(values).sum(),
    bucket_limit=edges[1:],
    bucket=counts,
  )


def tag(column: str) -> str:
  """Returns the tag of a column of metrics.csv, such as train/loss for train_loss."""
  group, _, rest = column.partition('_')
  return f'{group}/{rest}' if rest and group in _GROUPS else column
