"""Errors of runs, each with a one-line message."""

import contextlib
import errno
import os
from collections.abc import Iterator

_HINTS = {
  errno.ENOSPC: 'the disk is full; free some space, and the run can be resumed',
  errno.EDQUOT: 'the disk quota is used up; free some space, and the run can be resumed',
  errno.ENOENT: 'the file or its folder was removed or renamed while the run was going on',
}


class StateError(ValueError):
  """Raised if a state file cannot be used, or a state's layout is not that of stored states."""


class SaveError(StateError):
  """Raised if a file of the run can no longer be written. Rounds saved earlier are kept."""


class ResumeError(ValueError):
  """Raised if a run cannot be resumed as requested."""


class RunFileError(ResumeError):
  """Raised if a file of a run cannot be read. The run is then neither resumed nor reported."""


class NonFiniteWeightsError(ArithmeticError):
  """Raised if the global model has weights that are not finite. No checkpoint holds them."""


@contextlib.contextmanager
def saving(path: str, kind: type[ValueError] = SaveError) -> Iterator[None]:
  """Returns a context for writing a file of a run, which turns an OSError into a one-line error.

  Args:
    path: The file or folder that is written, for the message.
    kind: The type of the one-line error; `ResumeError` before the run has begun.
  """
  try:
    yield
  except OSError as error:
    reason = _HINTS.get(error.errno or 0, error.strerror or str(error))
    raise kind(f'{path} cannot be written: {reason}.') from error


def check_is_file(path: str) -> None:
  """Raises OSError if there is something at `path` that is no file, such as a pipe.

  Opening a pipe would wait for another program.
  """
  if os.path.exists(path) and not os.path.isfile(path):
    raise OSError('it is no file')


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
  """Returns a context for reading a file of a run, which turns errors into one-line errors.

  Raises:
    FileNotFoundError: If there is no such file.
    RunFileError: If the file cannot be read or parsed, or an entry is missing.
  """
  try:
    check_is_file(path)
    yield
  except FileNotFoundError:
    raise
  except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
    reason = f'it has no {error}' if isinstance(error, KeyError) else str(error)
    raise RunFileError(
      f'{path} cannot be read ({reason}): restore the file, or name another folder.'
    ) from None
