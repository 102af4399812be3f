"""Temporary folders that the next process removes if their own was killed.

The process that uses such a folder holds a lock on it, which ends with the process.
"""

import atexit
import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator

from tff_adaptive._utils import private_apis

_PREFIX_OF_SOCKETS = 'tff-adaptive-'
# Linux has 108 bytes for the path of a Unix socket, the last of them zero; macOS has 104.
_LONGEST_SOCKET_PATH = 103


@contextlib.contextmanager
def folder(prefix: str, parent: str | None = None) -> Iterator[str]:
  """A context with a new folder in `parent`, whose name begins with `prefix`.

  The default of `parent` is the system's folder for temporary files. The new folder is removed at
  the end. Folders of the same prefix that killed processes have left are removed at the beginning.
  """
  if parent is None:
    parent = tempfile.gettempdir()
  remove_abandoned(prefix, parent)
  path, lock = _locked(prefix, parent)
  try:
    yield path
  finally:
    shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


def remove_abandoned(prefix: str, parent: str) -> None:
  """Removes the folders that `folder` made in killed processes. Folders that are in use stay."""
  name_of_one = re.compile(re.escape(prefix) + '[a-z0-9_]{8}')  # `tempfile` adds eight characters.
  names: list[str] = []
  with contextlib.suppress(OSError):
    names = [name for name in os.listdir(parent) if name_of_one.fullmatch(name)]
  for name in names:
    path = os.path.join(parent, name)
    with contextlib.suppress(OSError):  # It is in use, another user's, or gone.
      lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
      try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
      finally:
        os.close(lock)


def use_for_processes() -> None:
  """Lets multiprocessing keep its sockets in a folder of this module until the process ends.

  Its own folders, /tmp/pymp-*, stay if the process is killed, and nothing tells whose they were.
  """
  stack = contextlib.ExitStack()
  path = stack.enter_context(folder(_PREFIX_OF_SOCKETS, _parent_of_sockets()))
  if not private_apis.set_folder_of_processes(path):
    stack.close()
    return
  # A forked process inherits the handler, and must not remove the folder of its parent.
  owner = os.getpid()
  atexit.register(lambda: stack.close() if os.getpid() == owner else None)


def _parent_of_sockets() -> str:
  """Returns the temporary folder, or /tmp if the paths of sockets would be too long there."""
  parent = tempfile.gettempdir()
  longest = os.path.join(parent, f'{_PREFIX_OF_SOCKETS}12345678', 'listener-12345678')
  if len(os.fsencode(longest)) <= _LONGEST_SOCKET_PATH or not os.access('/tmp', os.W_OK):
    return parent
  return '/tmp'


def _locked(prefix: str, parent: str) -> tuple[str, int]:
  """Returns a new folder and the descriptor that holds its lock."""
  while True:
    path = tempfile.mkdtemp(prefix=prefix, dir=parent)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    with contextlib.suppress(OSError):  # Some network file systems have no locks.
      fcntl.flock(lock, fcntl.LOCK_EX)
    # Another process may have taken the folder for an abandoned one before it was locked.
    if os.path.isdir(path):
      return path, lock
    os.close(lock)
