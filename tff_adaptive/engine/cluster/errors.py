"""Errors of workers, and errors of user code that happen in a worker."""

import pickle
import traceback


class WorkerError(RuntimeError):
  """Workers are not available, or not as requested."""


class WorkersLost(WorkerError):
  """The workers cannot do a call, because none is left or all of them fail."""


class Failure(Exception):
  """An error sent from a worker: its traceback as text, and pickled if it can be read back.

  Attributes:
    line: The worker, the error's type and message, and the file and line that raised it.
    worker_frames: The lines of code, as `traceback.extract_tb` returns them.
  """

  def __init__(
    self, line: str, text: str, worker_frames: list[traceback.FrameSummary], pickled: bytes
  ):
    super().__init__(line, text, worker_frames, pickled)  # All of it: so one is unpickled.
    self.line, self.worker_frames = line, worker_frames
    self._text, self._pickled = text, pickled

  def __str__(self) -> str:
    return self._text

  @classmethod
  def of(cls, error: BaseException, where: str) -> 'Failure':
    """Converts an error in a worker, named by `where`, to a form that can be sent."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for frame in frames:
      frame.locals = None
    at = f' ({frames[-1].filename}, line {frames[-1].lineno})' if frames else ''
    line = f'{where}: {type(error).__name__}: {" ".join(str(error).split()):.300}{at}'
    text = f'{where}:\n' + ''.join(traceback.format_exception(error))
    try:
      pickled = pickle.dumps(error) if isinstance(error, Exception) else b''
      pickle.loads(pickled)
    except Exception:  # Of many kinds: a lock in it, arguments that its class does not take.
      pickled = b''
    return cls(line, text, frames, pickled)

  def original(self) -> Exception:
    """Returns the original error with this as its cause, or a `WorkerError` if it is unreadable."""
    try:
      error: Exception = pickle.loads(self._pickled)
      return error
    except Exception:  # Its class is not here, say.
      return WorkerError(self.line)
