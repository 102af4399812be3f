"""What can go wrong with workers, and how an error of user code comes from one."""

import pickle
import traceback
from collections.abc import Sequence


class WorkerError(RuntimeError):
  """Workers cannot be had, or not as asked."""


class WorkersLost(WorkerError):
  """What was asked of the workers cannot be done: none is left, or none can do it."""


class WorkerTraceback(Exception):
  """The cause of an error that a worker raised: the worker's traceback as text.

  Attributes:
    worker_frames: The lines of code, as `traceback.extract_tb` returns them.
  """

  def __init__(self, text: str, worker_frames: Sequence[traceback.FrameSummary] = ()):
    super().__init__(text)
    self.worker_frames = worker_frames


class Failure(Exception):
  """An error on its way from a worker: as text, and pickled if it can be read back.

  Attributes:
    line: The worker, the error's type and message, and the file and line that raised it.
    in_worker: The cause to raise it with.
  """

  def __init__(self, line: str, text: str, frames: list[traceback.FrameSummary], pickled: bytes):
    super().__init__(line, text, frames, pickled)  # All of it: so an exception is unpickled.
    self.line, self._pickled = line, pickled
    self.in_worker = WorkerTraceback(text, frames)

  @classmethod
  def of(cls, error: Exception, where: str) -> 'Failure':
    """An error as it is sent."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for frame in frames:
      frame.locals = None
    at = f' ({frames[-1].filename}, line {frames[-1].lineno})' if frames else ''
    line = f'{where}: {type(error).__name__}: {" ".join(str(error).split()):.300}{at}'
    text = f'{where}:\n' + ''.join(traceback.format_exception(error))
    try:
      pickled = pickle.dumps(error)
      pickle.loads(pickled)
    except Exception:  # Of many kinds: a lock in it, arguments that its class does not take.
      pickled = b''
    return cls(line, text, frames, pickled)

  def original(self) -> Exception:
    """The error to raise here; a `WorkerError` with its line if it cannot be read."""
    try:
      error: Exception = pickle.loads(self._pickled)
      return error
    except Exception:  # Its class is not here, say.
      return WorkerError(self.line)
