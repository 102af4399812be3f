"""A file that must stay where it is and never become shorter while a run has it open."""

import contextlib
import os


class WatchedFile:
  """Notices that others removed, replaced or cut a file.

  Args:
    path: The path of the file, which exists.
  """

  def __init__(self, path: str) -> None:
    self._path = path
    # Device and inode, by which `samestat` tells a file from another of the same name.
    self._place = os.stat(path)
    self._size = self._place.st_size

  def note_size(self) -> None:
    """Notes the size, in bytes, below which the file counts as cut."""
    with contextlib.suppress(OSError):  # `is_in_place` reports that the file is gone.
      self._size = os.stat(self._path).st_size

  def is_in_place(self) -> bool:
    """Returns whether the file is at its path, and the same as at first."""
    try:
      return os.path.samestat(os.stat(self._path), self._place)
    except OSError:
      return False

  def is_intact(self) -> bool:
    """Returns whether the file is in its place and not shorter than noted."""
    return self.is_in_place() and os.stat(self._path).st_size >= self._size
