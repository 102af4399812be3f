"""Finds the user's own modules that a Python file imports, directly or through each other.

The statements `import` and `from ... import` of a file say what it imports, those in functions too.
Modules of Python, of installed packages and of this package are left out, because config.json
records their versions. Nothing is imported here.
"""

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import machinery
from typing import NamedTuple

_OWN_PACKAGES = ('tff_adaptive', 'tff_adaptive_tasks', 'tff_adaptive_scripts')
_INSTALLED = {'site-packages', 'dist-packages'}
_LIBRARIES = {
  os.path.realpath(sysconfig.get_path(name)) for name in ('stdlib', 'platstdlib', 'purelib')
}
# SHA-256 by path, of modules as they were when this process imported them.
_digests: dict[str, str] = {}
# Path by name, of modules that functions of files of this process import when they are called.
_late: dict[str, str] = {}


class _Module(NamedTuple):
  """A module, whether it is loaded or not.

  `file` is '' for a package without __init__.py. `folders` has the folders of a package.
  """

  file: str
  folders: Sequence[str]


def digests(content: bytes, folders: Sequence[str]) -> dict[str, str]:
  """Returns the SHA-256 of each of the user's modules that a file imports, by path.

  Args:
    content: The content of the Python file.
    folders: The folders in which Python looks for modules: `sys.path` when the file runs.

  Raises:
    ValueError: If a module has been changed since this process imported it, so that its digest
      would not be that of the code that runs.
    OSError: If a module cannot be read.
  """
  by_path: dict[str, str] = {}
  # Source texts still to be read, with the packages to which their relative imports refer.
  waiting = [(content, '')]
  while waiting:
    source, package = waiting.pop()
    for name in _imported_names(source, package):
      for part in _with_parents(name):
        module = _find(part, folders)
        if module is None or not _is_users(part, module):
          break
        if module.file and module.file not in by_path:
          text = _read(module.file)
          by_path[module.file] = _digest(part, module.file, text)
          of_package = part  # To which the module's relative imports refer.
          if not module.folders:
            of_package = part.rpartition('.')[0]
          waiting.append((text, of_package))
  return by_path


def outermost(content: bytes, folders: Sequence[str]) -> dict[str, str]:
  """Returns the path of each of the user's modules, or packages, by name, without submodules.

  They are those that Python would find for a file, and for the modules that it imports, in these
  folders, whatever is loaded already.
  """
  paths: dict[str, str] = {}
  seen = set()
  waiting = [content]
  while waiting:
    for name in _imported_names(waiting.pop(), ''):
      top = name.partition('.')[0]
      if top in seen:
        continue
      seen.add(top)
      path = _file_of(machinery.PathFinder.find_spec(top, list(folders)))
      if path and _is_users(top, _Module(path, ())):
        paths[top] = path
        waiting.append(_read(path))
  return paths


def other_of_same_name(paths: Mapping[str, str]) -> tuple[str, str, str] | None:
  """Returns one of a file's modules for whose name another one is loaded, or will be.

  Two files in two folders may each have a `helpers.py` beside them, and Python loads one of them.

  Args:
    paths: Those of `outermost`.

  Returns:
    The module's name, the path of the other one, and that of the file that the name stands for;
    None if there is no such module. Only modules of the user count.
  """
  for top, expected in paths.items():
    loaded = getattr(sys.modules.get(top), '__file__', None) or ''
    for actual in (loaded, _late.get(top, '')):
      differs = actual and os.path.realpath(actual) != os.path.realpath(expected)
      if differs and _is_users(top, _Module(os.path.abspath(actual), ())):
        return top, actual, expected
  return None


def note_late(paths: Mapping[str, str]) -> None:
  """Notes which modules a file that has run will import later, in a function, for the check above.

  `paths` are those of `outermost`.
  """
  _late.update((top, path) for top, path in paths.items() if top not in sys.modules)


def is_installed(path: str) -> bool:
  """Returns whether a file is part of an installed package."""
  return bool(_INSTALLED & set(path.split(os.sep)))


def _imported_names(source: bytes, package: str) -> Iterator[str]:
  """Yields the full names that a file imports; some may be no modules, but objects in modules."""
  try:
    tree = ast.parse(source)
  except (SyntaxError, ValueError):  # It has not been run, or Python has reported this.
    return
  for node in ast.walk(tree):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      start = ''
      if node.level:  # The number of leading dots.
        parents = package.split('.')
        start = '.'.join(parents[: len(parents) - node.level + 1])
      for alias in node.names:
        yield '.'.join(filter(None, (start, node.module, alias.name)))


def _with_parents(name: str) -> Iterator[str]:
  """Yields 'a', 'a.b' and 'a.b.c' for 'a.b.c'."""
  parts = name.split('.')
  for count in range(1, len(parts) + 1):
    yield '.'.join(parts[:count])


def _find(name: str, folders: Sequence[str]) -> _Module | None:
  """Returns the module of a name, as loaded or else as Python would find it; None without one."""
  loaded = sys.modules.get(name)
  if loaded is not None:
    return _module(getattr(loaded, '__file__', None), getattr(loaded, '__path__', None))
  parent = name.rpartition('.')[0]
  if parent:
    package = _find(parent, folders)
    folders = ()
    if package is not None:
      folders = package.folders
  spec = machinery.PathFinder.find_spec(name, list(folders))
  if spec is None:
    return None
  return _module(_file_of(spec), spec.submodule_search_locations)


def _file_of(spec: machinery.ModuleSpec | None) -> str:
  """Returns the path of the file of a module that was found, or ''."""
  if spec is None or not spec.has_location:
    return ''
  return spec.origin or ''


def _module(file: str | None, folders: Iterable[str] | None) -> _Module:
  path = ''
  if file:
    path = os.path.abspath(file)
  return _Module(path, list(folders or ()))


def _is_users(name: str, module: _Module) -> bool:
  """Returns whether a module is neither Python's, nor installed, nor of this package."""
  if name.partition('.')[0] in _OWN_PACKAGES or name in sys.builtin_module_names:
    return False
  if not module.file:  # A folder without __init__.py; its modules are looked at one by one.
    return bool(module.folders)
  path = os.path.realpath(module.file)
  if is_installed(path) or not os.path.isfile(path):
    return False
  return not any(path.startswith(os.path.join(library, '')) for library in _LIBRARIES)


def _digest(name: str, path: str, content: bytes) -> str:
  """Returns the digest of a module. Raises ValueError if it differs from that of what is loaded."""
  digest = hashlib.sha256(content).hexdigest()
  if name not in sys.modules:
    return digest
  # The first digest is that of the code that runs: Python does not read a module twice.
  if _digests.setdefault(path, digest) != digest:
    raise ValueError(
      f'{path!r} has been changed since this process imported it as {name}: start again, so that'
      ' the new code runs.'
    )
  return digest


def _read(path: str) -> bytes:
  with open(path, 'rb') as file:
    return file.read()
