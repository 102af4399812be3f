"""Errors of runs, each with a one-line message."""

import contextlib
import errno
from collections.abc import Iterator

_HINTS = {
  errno.ENOSPC: 'the disk is full; free some space, and the run can be resumed',
  errno.EDQUOT: 'the disk quota is used up; free some space, and the run can be resumed',
  errno.ENOENT: 'the file or its folder was removed or renamed while the run was going on',
}


class StateError(ValueError):
  """A state file cannot be used, or a state does not fit it."""


class SaveError(StateError):
  """A file of the run can no longer be written. Earlier saved rounds are kept."""


class ResumeError(ValueError):
  """A run cannot be resumed as requested."""


class RunFileError(ResumeError):
  """A file of a run cannot be read, so the run is neither resumed nor reported."""


class NonFiniteWeightsError(ArithmeticError):
  """The global model has weights that are not finite. No checkpoint holds them."""


@contextlib.contextmanager
def saving(path: str, kind: type[ValueError] = SaveError) -> Iterator[None]:
  """A context for writing a file of the run; OSErrors become `SaveError`s.

  Args:
    path: The file or folder, for the message.
    kind: The type of the error: `ResumeError` before the run has begun.
  """
  try:
    yield
  except OSError as error:
    reason = _HINTS.get(error.errno or 0, error.strerror or str(error))
    raise kind(f'{path} cannot be written: {reason}.') from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
  """A context for reading a file of the run; parser errors become one-line errors.

  Raises:
    FileNotFoundError: If there is no such file.
    RunFileError: If it cannot be read, or a part of it is missing.
  """
  try:
    yield
  except FileNotFoundError:
    raise
  except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
    reason = f'it has no {error}' if isinstance(error, KeyError) else str(error)
    raise RunFileError(
      f'{path} cannot be read ({reason}): restore the file, or name another folder.'
    ) from None
