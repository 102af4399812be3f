"""TensorBoard's view of a run, written without TensorFlow."""

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer import record_writer

_GROUPS = ('train', 'validation', 'inference', 'seconds')


class EventLog:
  """Scalars by round, in TensorBoard's event format."""

  def __init__(self, folder: str, *, purge_step: int):
    """Starts a new event file.

    Args:
      folder: Where event files lie; made if need be.
      purge_step: TensorBoard is told to forget what earlier files say of this round and
        later ones.
    """
    os.makedirs(folder, exist_ok=True)
    name = f'events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}'
    self._file = open(os.path.join(folder, name), 'wb')  # noqa: SIM115
    self._writer = record_writer.RecordWriter(self._file)
    self._write(event_pb2.Event(file_version='brain.Event:2'))
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    self._write(event_pb2.Event(step=purge_step, session_log=start))

  def append(self, row: Mapping[str, Any]) -> None:
    """Writes one round's row; `round` is the step."""
    values = [
      summary_pb2.Summary.Value(tag=_tag(name), simple_value=float(value))
      for name, value in row.items()
      if name != 'round'
    ]
    self._write(event_pb2.Event(step=int(row['round']), summary=summary_pb2.Summary(value=values)))

  def close(self) -> None:
    """Closes the file."""
    self._file.close()

  def _write(self, event: event_pb2.Event) -> None:
    event.wall_time = time.time()
    self._writer.write(event.SerializeToString())
    self._file.flush()


def _tag(column: str) -> str:
  """Returns the tag of a column: `train_loss` is shown as loss in the group train."""
  group, _, rest = column.partition('_')
  return f'{group}/{rest}' if rest and group in _GROUPS else column
