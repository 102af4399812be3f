"""Writes files atomically: whole or not at all."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

Place: TypeAlias = Callable[[str, str], None]


@contextlib.contextmanager
def atomic_path(path: str, place: Place | None = None) -> Iterator[str]:
  """A context that yields a temporary path, which replaces `path` if the block raises no error.

  The temporary file is in the same folder and has the same extension, by which figure writers
  choose the format. It is flushed to the disk before the replacement, and the folder after it, so
  that a power loss leaves either the old file or the new one. `place(temporary, path)` does the
  replacement; the default is `os.replace`. Temporary files that killed processes have left for the
  same `path` are removed.
  """
  folder, name = os.path.split(os.path.abspath(path))
  with contextlib.suppress(OSError):  # A folder may be writable and not readable.
    remove_leftovers(folder, [name])
  temporary, lock = _locked_temporary(folder, name)
  try:
    yield temporary
    # `mkstemp` gives its file mode 0600. The mask of the process can only be read by setting it.
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(temporary, 0o666 & ~umask)
    sync(temporary)
    (place or os.replace)(temporary, path)
  finally:
    with contextlib.suppress(FileNotFoundError):
      os.unlink(temporary)
    os.close(lock)
  sync(folder)


def _locked_temporary(folder: str, name: str) -> tuple[str, int]:
  """Returns a temporary file and the descriptor that holds its lock while the process lives."""
  stem, ending = os.path.splitext(name)
  while True:
    lock, temporary = tempfile.mkstemp(prefix=f'.{stem}.', suffix=ending, dir=folder)
    with contextlib.suppress(OSError):  # Some network file systems have no locks.
      fcntl.flock(lock, fcntl.LOCK_EX)
    # Another process may have taken the file for a leftover before it was locked.
    if os.path.exists(temporary):
      return temporary, lock
    os.close(lock)


def write_text(path: str, text: str, place: Place | None = None) -> None:
  """Writes `text` (UTF-8) to `path` atomically; for `place` see `atomic_path`."""
  with atomic_path(path, place) as temporary:
    descriptor = os.open(temporary, os.O_WRONLY)
    with os.fdopen(descriptor, 'w', encoding='utf-8', newline='') as file:
      file.write(text)


def write_json(path: str, value: Any, place: Place | None = None) -> None:
  """Writes `value` to `path` as indented JSON, atomically; for `place` see `atomic_path`."""
  write_text(path, json.dumps(value, indent=2) + '\n', place)


def place_new(temporary: str, path: str) -> None:
  """Gives a temporary file the name `path`. Raises FileExistsError if `path` exists already.

  On a file system without hard links, the existing file is replaced.
  """
  try:
    os.link(temporary, path)
  except FileExistsError:
    raise
  except OSError:
    os.replace(temporary, path)


def remove_leftovers(folder: str, names: Iterable[str]) -> None:
  """Removes the temporary files that killed processes left in a folder when writing `names`.

  A file that another process is writing is locked, and stays.
  """
  # `tempfile` puts eight characters in the middle of a name.
  parts = [map(re.escape, os.path.splitext(name)) for name in names]
  patterns = [re.compile(rf'\.{stem}\.[a-z0-9_]{{8}}{ending}') for stem, ending in parts]
  for file in os.listdir(folder):
    if any(pattern.fullmatch(file) for pattern in patterns):
      with contextlib.suppress(OSError):
        _remove_unless_locked(os.path.join(folder, file))


def _remove_unless_locked(path: str) -> None:
  descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.unlink(path)
  finally:
    os.close(descriptor)


def sync(path: str) -> None:
  """Flushes a file or a folder to the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
