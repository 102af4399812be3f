"""Writes a run's metrics for TensorBoard."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tff_adaptive.runs.errors import saving
from tff_adaptive.training import callbacks

_Event = tf.compat.v1.Event
_SessionLog = tf.compat.v1.SessionLog
_Summary = tf.compat.v1.Summary
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
    with saving(self._path), _system_errors():
      # TensorFlow's writer, because the package tensorboard takes long to import. It takes a path
      # for UTF-8, and what comes before '://' for the name of a file system.
      self._file = tf.io.TFRecordWriter(os.fsencode(os.path.abspath(self._path)))
    # The first record of a file names the version of the format.
    self._write(_Event(file_version='brain.Event:2'))
    start = _SessionLog(status=_SessionLog.START)
    self._write(_Event(step=run.first_round, session_log=start))

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Writes one round's row; its value of `round` is TensorBoard's step."""
    values = [
      _Summary.Value(tag=tag(name), simple_value=float(value))
      for name, value in row.items()
      if name != 'round'
    ]
    self._write(_Event(step=int(row['round']), summary=_Summary(value=values)))

  def close(self) -> None:
    """Closes the file."""
    if self._file is not None:
      self._file.close()

  def _write(self, event: Any) -> None:
    event.wall_time = time.time()
    with saving(self._path), _system_errors():
      os.stat(self._path)  # It may have been removed: an open file would not notice.
      self._file.write(event.SerializeToString())
      self._file.flush()  # So that TensorBoard shows each round at once.


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
  """Returns a context that turns errors of TensorFlow's files into OSErrors."""
  try:
    yield
  except tf.errors.OpError as error:
    number = None
    if isinstance(error, tf.errors.ResourceExhaustedError):
      number = errno.ENOSPC
    # The message is the path, '; ' and the system's words.
    raise OSError(number, error.message.rpartition('; ')[2]) from error


def tag(column: str) -> str:
  """Returns the tag of a column of metrics.csv, such as train/loss for train_loss."""
  group, _, rest = column.partition('_')
  if rest and group in _GROUPS:
    return f'{group}/{rest}'
  return column
