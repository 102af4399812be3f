"""The library of this project's TensorFlow operations, compiled once on each machine.

The machine's C++ compiler (`g++`, or the one that CXX names) compiles it in a second or two, into
the folder `tff_adaptive` of XDG_CACHE_HOME or `~/.cache`. The file's name has a digest of all that
the result depends on: the source, the compiler and its options, the processor and TensorFlow's
version. Importing this module imports no TensorFlow.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import shlex
import subprocess
import threading
from collections.abc import Iterable
from typing import Any

from tff_adaptive._utils import atomic_files, temporary_folders

PREFIX = 'TffAdaptive'  # The names of the operations begin with it.
_SOURCES = tuple(pathlib.Path(__file__).with_name(name) for name in ('lstm.cc', 'top_k.cc'))
_OPTIONS = (
  '-std=c++17',
  '-O3',
  '-ffp-contract=fast',
  '-fno-math-errno',
  '-shared',
  '-fPIC',
  # A process may have loaded older versions.
  '-static-libstdc++',
  '-static-libgcc',
)
# The flags that /proc/cpuinfo must have for wide vectors, and their options, the widest first.
_VECTORS = (
  ({'avx512f', 'avx512bw', 'avx512dq', 'avx512vl', 'fma'}, ('-mavx512f', '-mavx512bw')),
  ({'avx2', 'fma'}, ()),
)
_HINT = 'install g++, name another compiler in CXX, or leave out lstm=compiled'
_lock = threading.Lock()


class KernelError(ValueError):
  """Raised if the compiled operations are not available on this machine."""


def load() -> Any:
  """Returns a module with the operations as functions. Compiles them unless the cache has them.

  Raises:
    KernelError: If there is no compiler, or the compiled library cannot be loaded.
  """
  # The cache of `_load` does not keep two threads from compiling at the same time.
  with _lock:
    return _load()


def is_available() -> bool:
  """Returns whether the operations work on this machine. Compiles them as `load` does."""
  try:
    load()
  except KernelError:
    return False
  return True


def load_for(operations: Iterable[str]) -> None:
  """Loads the library if one of `operations`, which are names, belongs to it."""
  if any(name.startswith(PREFIX) for name in operations):
    load()


@functools.cache
def _load() -> Any:
  import tensorflow as tf

  flags = _cpu_flags()
  compiler = shlex.split(os.environ.get('CXX', '')) or ['g++']
  command = [*compiler, *_OPTIONS, *_vector_options(flags)]
  version = _run([*compiler, '--version'])
  # Sorted, because the order of a set differs from process to process.
  about = '\0'.join([*command, version, tf.__version__, *sorted(flags)])
  sources = b'\0'.join(source.read_bytes() for source in _SOURCES)
  name = f'operations-{hashlib.sha256(sources + about.encode()).hexdigest()[:16]}.so'
  command += [*map(str, _SOURCES), '-I', tf.sysconfig.get_include(), *tf.sysconfig.get_link_flags()]
  folder = cache_folder()
  if folder is not None:
    with contextlib.suppress(OSError, KernelError):  # The disk may be full, or mounted `noexec`.
      path = folder / name
      if path.exists():
        return _loaded(path)
      return _compiled(command, folder, name)
  try:
    with temporary_folders.folder('tff-adaptive-operations-') as temporary:
      return _compiled(command, pathlib.Path(temporary), name)
  except OSError as error:
    raise KernelError(f'The compiled operations cannot be written: {error}') from None


def _vector_options(flags: set[str]) -> tuple[str, ...]:
  """Returns the compiler's options for the widest vectors of a processor with these flags."""
  for needed, options in _VECTORS:
    if needed <= flags:
      return ('-mavx2', '-mfma', *options)
  return ()


def cache_folder() -> pathlib.Path | None:
  """Returns the library's folder; None if it cannot be made or other users may write to it."""
  base = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
  folder = pathlib.Path(base) / 'tff_adaptive'
  if not folder.is_absolute():  # Without a home, code would be run from the current folder.
    return None
  try:
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()  # Not `stat`, because another user may own a link.
  except OSError:
    return None
  if status.st_uid != os.geteuid() or status.st_mode & 0o022:
    return None  # Others could put a library there, whose code would be run.
  return folder


def _cpu_flags() -> set[str]:
  """Returns the processor's flags; none where Linux does not give them, or on other systems."""
  if not os.path.exists('/proc/cpuinfo'):
    return set()
  with open('/proc/cpuinfo', encoding='utf-8') as file:
    return next((set(line.split()[2:]) for line in file if line.startswith('flags')), set())


def _compiled(command: list[str], folder: pathlib.Path, name: str) -> Any:
  """Compiles, loads and stores the library; returns its module. Other processes may do the same."""
  # If this process is killed, the next one that compiles, also another version, removes the folder.
  with temporary_folders.folder('.operations-', str(folder)) as temporary:
    part = os.path.join(temporary, name)
    pathlib.Path(part).touch()  # If the compiler makes nothing, loading says so.
    _run([*command, '-o', part])
    atomic_files.sync(part)  # A truncated library would crash the process that loads it.
    library = _loaded(pathlib.Path(part))
    os.replace(part, folder / name)
  return library


def _loaded(path: pathlib.Path) -> Any:
  import tensorflow as tf

  try:
    return tf.load_op_library(str(path))
  except tf.errors.OpError as error:
    raise KernelError(
      f'The compiled operations cannot be loaded ({error.message}); {_HINT}'
    ) from None


def _run(command: list[str]) -> str:
  """Runs the compiler and returns its output."""
  needs = f'Compiled operations need a C++ compiler, and {command[0]!r}'
  try:
    done = subprocess.run(command, capture_output=True, text=True, errors='replace', check=False)
  except OSError as error:
    raise KernelError(f'{needs} cannot be run ({error.strerror}): {_HINT}') from None
  if done.returncode:
    reason = ' '.join(done.stderr.split())[-300:] or f'exit code {done.returncode}'
    raise KernelError(f'{needs} failed ({reason}): {_HINT}')
  return done.stdout
