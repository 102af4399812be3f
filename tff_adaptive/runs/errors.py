"""What can go wrong with a run: its errors, each one line for people."""

import contextlib
import errno
from collections.abc import Iterator

_HINTS = {
  errno.ENOSPC: 'the disk is full; free some space, and the run can be resumed',
  errno.EDQUOT: 'the disk quota is used up; free some space, and the run can be resumed',
  errno.ENOENT: 'the file or its folder was removed or renamed while the run was going on',
}


class StateError(ValueError):
  """A state file that cannot be used, or a state that does not belong in it."""


class SaveError(StateError):
  """A run's file can no longer be written. Earlier saved rounds are kept."""


class ResumeError(ValueError):
  """A run that cannot be resumed as asked."""


class RunFileError(ResumeError):
  """A file of a run that cannot be read: its run is neither resumed nor reported."""


class NonFiniteWeightsError(ArithmeticError):
  """The global model has weights that are not finite; no checkpoint holds them."""


@contextlib.contextmanager
def saving(path: str, kind: type[ValueError] = SaveError) -> Iterator[None]:
  """A context in which a file of the run is written: its OSErrors become `SaveError`s.

  Args:
    path: The file or folder, for the message.
    kind: `ResumeError` before the run has begun.
  """
  try:
    yield
  except OSError as error:
    reason = _HINTS.get(error.errno or 0, error.strerror or str(error))
    raise kind(f'{path} cannot be written: {reason}.') from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
  """A context in which a file of the run is read: whatever its parser raises is one line.

  Raises:
    FileNotFoundError: If there is no such file.
    RunFileError: If it cannot be read or has not what is needed of it.
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
