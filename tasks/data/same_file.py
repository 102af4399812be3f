"""A file that must be the same wherever it is opened again."""

import functools
import hashlib
import os

from tff_adaptive_tasks import errors

_WHOLE_BYTES = 1 << 30
_BLOCK_BYTES, _BLOCKS = 1 << 20, 1024


class SameFile:
  """A file's path; unpickled, perhaps on another machine, it is compared with what it was.

  Compared are the size and a SHA-256, of the whole file up to a GiB, of a larger one over 1,024
  blocks of a MiB, evenly spaced.
  """

  def __init__(self, path: str):
    """Takes the path; nothing is read yet.

    Args:
      path: The file.
    """
    self.path = os.path.abspath(path)

  def __reduce__(self) -> tuple:
    return _opened_again, (self.path, *_fingerprint_of(self.path))


def _opened_again(path: str, size: int, digest: str) -> SameFile:
  if not os.path.isfile(path):
    raise errors.DataError(
      f'{path} is not on this machine: copy it there, to the same path, or keep it on storage that'
      ' all machines share'
    )
  if _fingerprint_of(path) != (size, digest):
    raise errors.DataError(
      f"{path} differs from the trainer's file of that name: copy the trainer's file there"
    )
  return SameFile(path)


def _fingerprint_of(path: str) -> tuple[int, str]:
  """A file's size and digest; those of a file that has not changed are known."""
  status = os.stat(path)
  return status.st_size, _digest(path, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _digest(path: str, size: int, modified: int) -> str:
  del modified
  total = hashlib.sha256()
  with open(path, 'rb') as file:
    if size <= _WHOLE_BYTES:
      while block := file.read(_BLOCK_BYTES):
        total.update(block)
    else:
      for i in range(_BLOCKS):
        file.seek(i * (size - _BLOCK_BYTES) // (_BLOCKS - 1))
        total.update(file.read(_BLOCK_BYTES))
  return total.hexdigest()
