"""Loads objects that a user's own Python file defines, 'FILE.py:NAME'.

The file runs as a module with a unique name, once for each path and content. (importlib would store
a compiled copy next to the file, which might be outdated.) While the file runs, its folder is the
last entry of sys.path. It can therefore import modules next to it, which hide no installed ones.
What its functions import later is found there too. Nothing here imports TensorFlow.
"""

import hashlib
import inspect
import os
import sys
import traceback
import types
from importlib import machinery
from typing import Any, NamedTuple

from tff_adaptive._utils import error_text, user_imports

MODULE_PREFIX = '_tff_adaptive_user_code_'


class UserCode(NamedTuple):
  """The origin of an object in a user's file.

  Attributes:
    path: The file's absolute path.
    name: The name of the object in the file.
    sha256: The file's SHA-256.
    modules: Path and SHA-256 of each of the user's modules that the file imports, and of those that
      they import. The paths are relative to the file's folder.
  """

  path: str
  name: str
  sha256: str
  modules: tuple[tuple[str, str], ...] = ()

  def record(self) -> dict[str, Any]:
    """Returns the entry of the file in config.json."""
    return {'path': self.path, 'sha256': self.sha256, 'modules': dict(self.modules)}


class Place(NamedTuple):
  """A line of a user's file: the file's absolute path, and the line's number from 1."""

  path: str
  line: int


def is_reference(text: str) -> bool:
  """Returns whether a text has the form 'FILE.py:NAME', or 'FILE.py' alone."""
  return '.py:' in text or text.endswith('.py')


def is_module(name: str) -> bool:
  """Returns whether a module comes from a user's file, so that other processes cannot import it."""
  return name.startswith(MODULE_PREFIX)


def load(reference: str) -> tuple[Any, UserCode]:
  """Returns the object to which a reference refers.

  Args:
    reference: 'FILE.py:NAME'. A relative path starts at the current folder, ~ is the user's home.

  Returns:
    The object and its origin.

  Raises:
    ValueError: If the reference has no name, or the file cannot be read, raises an error when it
      runs, or does not define the name. Also if a module that it imports has been changed since
      this process imported it, or is another one of the same name. The message has one line.
  """
  path, separator, name = reference.rpartition('.py:')
  if not separator or not name.isidentifier():
    raise ValueError(f'{reference!r} names nothing in a file: write FILE.py:NAME.')
  path = os.path.abspath(os.path.expanduser(path + '.py'))
  if os.path.exists(path) and not os.path.isfile(path):  # Opening a pipe would wait for data.
    raise ValueError(f'{path!r} cannot be read: it is no file; check the path.')
  try:
    with open(path, 'rb') as file:
      content = file.read()
  except OSError as error:
    raise ValueError(f'{path!r} cannot be read: {error.strerror}; check the path.') from None
  digest = hashlib.sha256(content).hexdigest()
  module = _module(path, content, digest)
  if name not in vars(module):
    raise ValueError(f'{path!r} defines no {name}: check the name after the colon.')
  return vars(module)[name], UserCode(path, name, digest, _modules(path, content))


def _modules(path: str, content: bytes) -> tuple[tuple[str, str], ...]:
  """Returns `UserCode.modules` of a file, in the order of their paths."""
  folder = os.path.dirname(path)
  try:
    digests = user_imports.digests(content, [*sys.path, folder])
  except OSError as error:
    raise ValueError(
      f'{error.filename!r}, which {path!r} imports, cannot be read: {error.strerror}.'
    ) from None
  digests.pop(path, None)  # A module that imports the file itself.
  relative = {os.path.relpath(file, folder): digest for file, digest in digests.items()}
  return tuple(sorted(relative.items()))


def _module(path: str, content: bytes, digest: str) -> types.ModuleType:
  """Returns the module of a file. Runs the file unless this content has been run already."""
  location = hashlib.sha256(os.fsencode(path)).hexdigest()
  name = f'{MODULE_PREFIX}{location[:16]}_{digest[:16]}'
  if name in sys.modules:
    return sys.modules[name]
  module = types.ModuleType(name)
  module.__file__ = path
  sys.modules[name] = module  # A dataclass, for example, looks its module up here.
  folder = os.path.dirname(path)
  is_new = folder not in sys.path
  if is_new:
    sys.path.append(folder)
  try:
    imports = user_imports.outermost(content, sys.path)
    other = user_imports.other_of_same_name(imports)
    if other is not None:
      raise ImportError(f'{other[0]} is {other[1]!r} in this process, not {other[2]!r}; rename one')
    exec(compile(content, path, 'exec'), vars(module))
    user_imports.note_late(imports)
    _BESIDE.folders.add(folder)
    if _BESIDE not in sys.meta_path:
      sys.meta_path.append(_BESIDE)  # Last, so that it hides nothing.
  except BaseException as error:
    at = place(error)
    del sys.modules[name]
    if isinstance(error, KeyboardInterrupt):
      raise
    where = ''
    if at is not None and at.path == path:
      where = f' line {at.line}:'
    raise ValueError(f'{path!r} cannot be run:{where} {in_words(error)}; fix the file.') from error
  finally:
    if is_new and folder in sys.path:  # The file may have changed sys.path itself.
      sys.path.remove(folder)
  return module


class _BesideTheImporter:
  """Finds modules in the folder of a user's file for code in that folder, when it is called."""

  def __init__(self) -> None:
    self.folders: set[str] = set()

  def find_spec(
    self, name: str, path: Any = None, unused_target: Any = None
  ) -> machinery.ModuleSpec | None:
    """Returns the spec of a module that nothing else has found; see importlib.abc."""
    if path is not None:  # A package's module, which its own path finds.
      return None
    file = _importing_file()
    if user_imports.is_installed(file):
      return None
    holders = [folder for folder in self.folders if file.startswith(os.path.join(folder, ''))]
    return machinery.PathFinder.find_spec(name, sorted(holders, key=len, reverse=True))


_BESIDE = _BesideTheImporter()


def _importing_file() -> str:
  """Returns the path of the file whose code imports, or ''."""
  frame: Any = inspect.currentframe()
  while frame is not None:
    values = frame.f_globals
    module = str(values.get('__name__'))
    if module != __name__ and not module.startswith('importlib'):
      return os.path.abspath(values.get('__file__') or '')
    frame = frame.f_back
  return ''


def place(error: BaseException) -> Place | None:
  """Returns the line of a user's file where an error or its cause arose; None if there is none."""
  paths = {module.__file__ for name, module in list(sys.modules.items()) if is_module(name)}
  last: Place | None = None
  seen = set()
  # Causes may form a circle, hence `seen`.
  link: BaseException | None = error
  while link is not None and id(link) not in seen:
    seen.add(id(link))
    # If an error arose in a Ray worker, its cause has the attribute `worker_frames`.
    frames = getattr(link, 'worker_frames', None) or traceback.extract_tb(link.__traceback__)
    for frame in frames:
      if frame.filename in paths:
        last = Place(frame.filename, frame.lineno or 0)
    if isinstance(link, SyntaxError) and link.filename in paths:
      last = Place(link.filename or '', link.lineno or 0)
    link = link.__cause__ or link.__context__
  return last


def in_words(error: BaseException) -> str:
  """Returns an error's type and message in one line of limited length."""
  return f'{type(error).__name__}: {error_text.in_brief(error)}'
