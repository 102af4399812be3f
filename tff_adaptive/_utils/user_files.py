"""Finds a user's Python files as a run used them: the files themselves, or the run's copies.

An entry is one of `files` in a config.json: the file's path and SHA-256, those of the modules that
it imports, with paths relative to the file's folder, and where the run's folder has a copy.
"""

import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tff_adaptive._utils import user_code

FOLDER = 'files'  # In a run's folder; it has a folder for each flag.


class FoundFile(NamedTuple):
  """Where a file is as a run used it.

  Attributes:
    path: The path of the file, or of the run's copy.
    change: What has become of the file itself if the copy stands in for it, in words; else ''.
  """

  path: str
  change: str


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
  return all(digest(path) == sha256 for path, sha256, _ in parts(entry))


def as_used(folder: str, flag: str, entry: Mapping[str, Any], name: str) -> FoundFile:
  """Returns where a user's file is as the run in a folder used it.

  Args:
    folder: The run's folder.
    flag: The name of the setting that names the file, the key of the entry.
    entry: The file's entry.
    name: The name of the object in the file. The file is run, to see what it imports now.

  Raises:
    ValueError: If the file is gone or has changed and there is no copy of it, or the copy would
      import other modules. The message has one line.
  """
  path = entry['path']
  change = ''
  if not is_unchanged(entry):
    change = 'is gone'
    if os.path.exists(path):
      change = 'or a module that it imports, has changed since the run'
    copy = copy_of(folder, flag, entry)
    if copy is None:
      raise ValueError(
        f'{path!r} {change}, and {folder} has no copy of it: put the former file back.'
      )
    path = copy
  source = user_code.load(f'{path}:{name}')[1]
  expected = entry.get('modules')
  # Only the contents count: a copy has its modules in other places.
  if expected is not None and sorted(dict(source.modules).values()) != sorted(expected.values()):
    modules = ', '.join(module for module, _ in source.modules) or 'those of the run'
    raise ValueError(
      f'{path!r} imports a module that has changed since the run: put the former one back in place'
      f' of {modules}.'
    )
  return FoundFile(path, change)


def digest(path: str) -> str | None:
  """Returns the SHA-256 of a file, in hex; None if there is no such file."""
  try:
    with open(path, 'rb') as file:
      return hashlib.sha256(file.read()).hexdigest()
  except OSError:
    return None


def parts(entry: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
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
