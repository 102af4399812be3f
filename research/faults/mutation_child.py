"""One mistake and its tests, in a forked process; see `research.mutations`."""

import collections
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import resource
import signal
import sys
import tempfile
import types
from collections.abc import Sequence
from typing import Any, NamedTuple


class Target(NamedTuple):
  """A module: its name, its file, and the files of its tests."""

  module: str
  path: pathlib.Path
  tests: Sequence[str]


class _Mutated(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
  """Imports one module from another text; the rest of the import system is as it was."""

  def __init__(self, target: Target, text_path: str):
    super().__init__(target.module, os.path.abspath(target.path))
    self._text_path = text_path

  def find_spec(
    self, fullname: str, path: object, target: object = None
  ) -> importlib.machinery.ModuleSpec | None:
    del path, target
    return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

  def get_code(self, fullname: str) -> types.CodeType:
    # AutoGraph reads functions again from the file of their code: it must find the mistake too.
    del fullname
    text = pathlib.Path(self._text_path).read_text(encoding='utf-8')
    return compile(text, self._text_path, 'exec', dont_inherit=True)


class _Plugin:
  """Runs first the tests that killed most mutants, then file by file; notes the one that fails."""

  def __init__(self, kills: collections.Counter[str], tests: Sequence[str], path: str):
    self._kills, self._path = kills, path
    self._files = [test.partition('::')[0] for test in tests]

  def pytest_collection_modifyitems(self, items: list) -> None:  # After conftest.py's own order.
    items.sort(key=lambda i: (-self._kills[i.nodeid], self._files.index(i.nodeid.split('::')[0])))

  def pytest_runtest_logreport(self, report: Any) -> None:
    if report.failed:
      pathlib.Path(self._path).write_text(report.nodeid, encoding='utf-8')

  pytest_collectreport = pytest_runtest_logreport


def _run_tests(target: Target, text: str, folder: str, kills: collections.Counter[str]) -> None:
  """What a child does: never returns, exits with pytest's code."""
  log = os.open(os.path.join(folder, 'log'), os.O_WRONLY | os.O_CREAT)
  os.dup2(log, 1)
  os.dup2(log, 2)
  text_path = os.path.join(folder, 'mutant.py')
  pathlib.Path(text_path).write_text(text, encoding='utf-8')
  os.environ['TMPDIR'] = tempfile.tempdir = folder
  sys.meta_path.insert(0, _Mutated(target, text_path))
  import pytest
  import tensorflow_federated as tff

  # The default context has a thread since TFF was imported, which did not survive the fork.
  tff.backends.native.set_sync_local_cpp_execution_context()
  code = 1
  try:
    flags = ['-xq', '-pno:cacheprovider', '-n0', '-mnot slow and not xdist_group']
    flags += ['--timeout=180', '--timeout-method=thread']  # A mistake may make a test wait.
    plugin = _Plugin(kills, target.tests, os.path.join(folder, 'by'))
    code = int(pytest.main([*flags, f'--basetemp={folder}/tmp', *target.tests], plugins=[plugin]))
  finally:
    sys.stdout.flush()
    os._exit(code)


class Child:
  """A forked child that runs the tests of a module against a text."""

  def __init__(self, target: Target, text: str, seconds: int, kills: collections.Counter[str]):
    """Starts it."""
    self._folder = tempfile.TemporaryDirectory(prefix='mutant')
    self._pid = os.fork()
    if not self._pid:
      os.setsid()
      resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
      resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
      _run_tests(target, text, self._folder.name, kills)

  def poll(self) -> tuple[str, float, str] | None:
    """Returns result, processor seconds and the first failure's name, or None while it runs.

    The result is 'survived', 'killed' or 'timeout' (too many processor seconds).
    """
    pid, status, used = os.wait4(self._pid, os.WNOHANG)
    if not pid:
      return None
    ran_out = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    result = 'survived' if status == 0 else 'timeout' if ran_out else 'killed'
    # Also what the tests started.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._pid, signal.SIGKILL)
    by = self._read('by') or ' '.join(self._read('log').splitlines()[-1:])
    self._folder.cleanup()
    return result, round(used.ru_utime + used.ru_stime, 1), by if result != 'survived' else ''

  def _read(self, name: str) -> str:
    path = pathlib.Path(self._folder.name, name)
    return path.read_text(encoding='utf-8', errors='replace') if path.exists() else ''
