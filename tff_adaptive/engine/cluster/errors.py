"""Errors of workers, and errors of user code that happen in a worker."""

import pickle
import traceback

from tff_adaptive._utils import error_text


class WorkerError(RuntimeError):
  """Raised if a Ray cluster or its workers cannot be used as requested."""


class WorkersLost(WorkerError):
  """Raised if a call cannot be done: no worker is left, or each worker that got the call failed."""


class Failure(Exception):
  """An error of user code in a worker, in a form that every process can unpickle.

  Attributes:
    line: One line of text: the worker, the error's type and message, and where it was raised.
    worker_frames: The error's traceback, as `traceback.extract_tb` returns it.
  """

  def __init__(
    self, line: str, text: str, worker_frames: list[traceback.FrameSummary], pickled: bytes
  ):
    super().__init__(line, text, worker_frames, pickled)  # Unpickling passes these to `__init__`.
    self.line = line
    self.worker_frames = worker_frames
    self._text = text
    self._pickled = pickled

  def __str__(self) -> str:
    return self._text

  @classmethod
  def of(cls, error: BaseException, where: str) -> 'Failure':
    """Returns the `Failure` of an error in the worker that the text `where` names."""
    frames = list(traceback.extract_tb(error.__traceback__))
    for frame in frames:
      frame.locals = None
    line = f'{where}: {type(error).__name__}: {error_text.in_brief(error)}'
    if frames:
      line += f' ({frames[-1].filename}, line {frames[-1].lineno})'
    text = f'{where}:\n' + ''.join(traceback.format_exception(error))
    pickled = b''
    if isinstance(error, Exception):  # A SystemExit is not raised again: it would end the trainer.
      try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
      except Exception:  # Of any kind: it may hold a lock, or its class take other arguments.
        pickled = b''
    return cls(line, text, frames, pickled)

  def original(self) -> Exception:
    """Returns the original error, or a `WorkerError` if it cannot be unpickled here."""
    try:
      error: Exception = pickle.loads(self._pickled)
      return error
    except Exception:  # This process may not have its class.
      return WorkerError(self.line)
