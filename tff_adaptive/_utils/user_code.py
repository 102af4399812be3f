"""Loads what a user's own Python file defines: 'FILE.py:NAME'.

The file runs as a module of its own, with a name that no other module has, once for each path and
content. While it runs its folder is the last entry of sys.path, so that it can import the modules
next to it, which shadow nothing that is installed; afterwards the entry is gone. Nothing here
imports TensorFlow.
"""

import hashlib
import os
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

_loaded: set[str] = set()  # Names of modules, for `forget`.


class UserCode(NamedTuple):
  """Where an object of a user's file comes from.

  Attributes:
    path: Absolute path of the file.
    name: The object's name in it.
    sha256: Hexadecimal digest of the file's bytes (not of what it imports).
  """

  path: str
  name: str
  sha256: str


def is_reference(text: str) -> bool:
  """Whether a text means an object of a file and not a name: 'FILE.py:NAME', or 'FILE.py' alone."""
  return '.py:' in text or text.endswith('.py')


def load(reference: str) -> tuple[Any, UserCode]:
  """Returns the object that a reference names.

  Args:
    reference: 'FILE.py:NAME'; a relative path is one from the current folder, ~ the user's home.

  Returns:
    The object, and where it comes from.

  Raises:
    ValueError: In one line, if the reference has no name, the file cannot be read or raises when
      it runs, or defines no such name.
  """
  path, separator, name = reference.rpartition('.py:')
  if not separator or not name.isidentifier():
    raise ValueError(f'{reference!r} names nothing in a file: write FILE.py:NAME.')
  path = os.path.abspath(os.path.expanduser(path + '.py'))
  try:
    with open(path, 'rb') as file:
      content = file.read()
  except (OSError, ValueError) as error:  # ValueError: a null character in the path.
    reason = getattr(error, 'strerror', None) or error
    raise ValueError(f'{path!r} cannot be read: {reason}; check the path.') from None
  digest = hashlib.sha256(content).hexdigest()
  module = _module(path, content, digest)
  if not hasattr(module, name):
    raise ValueError(f'{path!r} defines no {name}: check the name after the colon.')
  return getattr(module, name), UserCode(path, name, digest)


def forget() -> None:
  """Forgets the files that were run, and the modules next to them that they imported.

  The next `load` runs a file anew: nothing that its functions left in it is there any more.
  """
  for name in _loaded:
    sys.modules.pop(name, None)
  _loaded.clear()


def _module(path: str, content: bytes, digest: str) -> types.ModuleType:
  """Returns the module of a file, which is run unless this very content has been."""
  place = hashlib.sha256(os.fsencode(path)).hexdigest()
  # Registered, for dataclasses and others look a class's module up.
  name = f'_tff_adaptive_user_code_{place[:16]}_{digest[:16]}'
  if name in sys.modules:
    return sys.modules[name]
  before = set(sys.modules)
  module = types.ModuleType(name)
  module.__file__ = path
  sys.modules[name] = module
  folder = os.path.dirname(path)
  sys.path.append(folder)
  try:
    exec(compile(content, path, 'exec'), vars(module))
  except (Exception, SystemExit) as error:
    del sys.modules[name]
    message = ' '.join(str(error).split())
    raise ValueError(
      f'{path!r} cannot be run:{_line(error, path)} {type(error).__name__}: {message:.300}; fix the'
      ' file.'
    ) from error
  finally:
    _loaded.update(_next_to(folder, set(sys.modules) - before), [name])
    # The last one equal to it: the file may have put others there, or taken it away.
    if folder in sys.path:
      del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folder)]
  return module


def _next_to(folder: str, names: Iterable[str]) -> list[str]:
  """Returns those of some modules that lie in a folder itself."""
  paths = {name: getattr(sys.modules[name], '__file__', None) or '' for name in names}
  return [name for name, path in paths.items() if os.path.dirname(path) == folder]


def _line(error: BaseException, path: str) -> str:
  """Returns where in a file an error arose, as ' line 3:'; empty where that is unknown."""
  if isinstance(error, SyntaxError) and error.filename == path:
    return f' line {error.lineno}:'
  lines, trace = [], error.__traceback__
  while trace is not None:
    if trace.tb_frame.f_code.co_filename == path:
      lines.append(trace.tb_lineno)
    trace = trace.tb_next
  return f' line {lines[-1]}:' if lines else ''
