"""Stores in a run's folder the user's own Python files, so that the run can be repeated later."""

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs.errors import saving
from tff_adaptive.training import callbacks

FOLDER = 'files'  # In a run's folder; it has a folder for each flag.


class StoreFiles(callbacks.Callback):
  """A callback that copies the user's files into the run's folder when the run begins.

  `files` is that of `runs.config.Record`. Modules that a file imports are copied too, to where the
  copy finds them. A file that has been changed since it was loaded is not copied.
  """

  def __init__(self, files: Mapping[str, Mapping[str, Any]]):
    """Creates the callback."""
    self._files = files

  def begin(self, run: callbacks.RunInfo) -> None:
    """Copies the files that are not there yet."""
    if run.output_dir is None:
      return
    for flag, entry in self._files.items():
      if not is_python(entry):
        continue
      folder = os.path.join(run.output_dir, os.path.dirname(place_of_copy(flag, entry)))
      for path, sha256, place in _parts(entry):
        target = os.path.join(folder, place)
        if digest(target) == sha256:
          continue
        if digest(path) != sha256:
          run.say(f'{path!r} has been changed since it was loaded: the run has no copy of it.')
          continue
        _copy(path, target)


def is_python(entry: Mapping[str, Any]) -> bool:
  """Returns whether an entry of `files` is of a Python file."""
  return 'modules' in entry


def place_of_copy(flag: str, entry: Mapping[str, Any]) -> str:
  """Returns the path, within the run's folder, of the copy of the file that a flag names."""
  return os.path.join(FOLDER, flag, os.path.basename(entry['path']))


def copy_of(folder: str, flag: str, entry: Mapping[str, Any]) -> str | None:
  """Returns the path of a run's copy of a user's file; None if it is not there or not whole."""
  file = os.path.join(folder, entry.get('copy') or place_of_copy(flag, entry))
  if digest(file) != entry['sha256']:
    return None
  return file


def is_unchanged(entry: Mapping[str, Any]) -> bool:
  """Returns whether a user's file and the modules that it imports are as they were."""
  return all(digest(path) == sha256 for path, sha256, _ in _parts(entry))


def digest(path: str) -> str | None:
  """Returns the SHA-256 of a file, in hex; None if there is no such file."""
  try:
    with open(path, 'rb') as file:
      return hashlib.sha256(file.read()).hexdigest()
  except OSError:
    return None


def _parts(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
  """Yields path, SHA-256 and place in the folder of copies of a file and of its modules."""
  path = entry['path']
  folder = os.path.dirname(path)
  yield path, entry['sha256'], os.path.basename(path)
  for relative, sha256 in entry.get('modules', {}).items():
    module = os.path.normpath(os.path.join(folder, relative))
    yield module, sha256, _place(module, folder)


def _place(module: str, folder: str) -> str:
  """Returns a module's path relative to the folder from which Python imports it."""
  holders = [os.path.abspath(path) for path in [folder, *sys.path]]
  inside = [path for path in holders if module.startswith(os.path.join(path, ''))]
  # The longest path is the closest; without any, the module was found in another way.
  holder = max(inside, key=len, default=os.path.dirname(module))
  return os.path.relpath(module, holder)


def _copy(path: str, target: str) -> None:
  with saving(target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with atomic_files.atomic_path(target) as temporary:
      shutil.copyfile(path, temporary)
