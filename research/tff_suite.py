"""Runs TFF's own tests in its native context and in the graph engine, and compares the two.

    python -m research.tff_suite --source=CHECKOUT [--only=PATTERN]

CHECKOUT is TFF's repository at the tag of the installed version (v0.87.0), or another repository of
TFF programs, such as google-research/federated. The tests, the examples' tests and the notebooks'
cells that name TFF's contexts or TFF itself run twice, each file in a process of its own. Each
file's results are kept under --work, and what is there is not run again: delete it to repeat it.
The results of computations are compared where a test passes in both contexts, unless they differ
between two native runs too.

A test that passes natively alone, or gives other results, is a difference.
`tff_suite_expected.json` gives the expected ones (PATH::TEST, `*` as in a shell) their reasons.
Exit codes: 0 no other difference; 1 there is one; 2 bad arguments.
"""

import argparse
import asyncio
import collections
import contextlib
import fnmatch
import json
import multiprocessing
import os
import pathlib
import pickle
import re
import runpy
import shutil
import signal
import sys
import sysconfig
import time
import traceback
import types
import unittest
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tff_adaptive._utils import temporary_folders

EXPECTED = pathlib.Path(__file__).with_name('tff_suite_expected.json')
_CONTEXTS = ('native', 'engine', 'native_again')
_NAMES_TFF = re.compile(r'cpp_execution_context|import tensorflow_federated as tff')
_CONTEXT_MAKER = re.compile(r'(create|set)_(a?sync)_(local|test)_cpp_execution_context')
_OTHER = 'its computations gave other results'
_PROCESSES = multiprocessing.get_context('forkserver')  # It imports TFF once.


class Outcome(NamedTuple):
  """What became of a test."""

  kind: str  # 'passed', 'failed' or 'skipped'.
  message: str = ''
  results: Any = ()  # Of its computations, with containers as `engines.plain` has them.


Outcomes = dict[str, Outcome]  # By the test's name.


def make_overlay(source: pathlib.Path, wheel: pathlib.Path, overlay: pathlib.Path) -> None:
  """Links the wheel's files, and those of the source that it lacks, into one package."""

  def link(path: Any, to: Any) -> None:
    if not os.path.lexists(to):
      os.symlink(path, to)

  for root in (wheel, source / wheel.name):
    if root.is_dir():
      shutil.copytree(root, overlay / wheel.name, copy_function=link, dirs_exist_ok=True)
  for folder in (source / 'examples').glob('*/'):  # TFF's own tests import them by such names.
    link(folder, overlay / f'examples{folder.name}')


def programs(source: pathlib.Path, only: str) -> list[str]:
  """The tests and notebooks of a checkout that may run computations, as paths in it."""
  paths = [*source.rglob('*_test.py'), *source.rglob('*.ipynb')]
  texts = {str(path.relative_to(source)): path.read_text(encoding='utf-8') for path in paths}
  named = [name for name, text in texts.items() if _NAMES_TFF.search(text)]
  return sorted(name for name in named if re.search(only, name))


def _differ(actual: Outcome, expected: Outcome) -> bool:
  """Whether two outcomes have other results, by more than rounding."""
  from tests.helpers import engines

  try:
    engines.assert_same(actual.results, expected.results, rtol=1e-3, atol=1e-4)
  except AssertionError:
    return True
  return False


class _Results(unittest.TestResult):
  """Keeps the outcome of each test as it ends, with the results of its computations."""

  def __init__(self, path: pathlib.Path):
    super().__init__()
    self._file = path.open('wb')
    self.of_computations: list[Any] = []

  def stopTest(self, test: Any) -> None:
    super().stopTest(test)
    bad = self.errors + self.failures  # A subtest has the test that it is a part of.
    failed = [text for one, text in bad if test is getattr(one, 'test_case', one)]
    skipped = any(one is test for one, _ in self.skipped)
    sys.stderr.write('\n'.join(failed))
    message = ''
    kind = 'skipped' if skipped else 'passed'
    if failed:
      message = failed[0].strip().splitlines()[-1]
      kind = 'failed'
    self.write(f'{type(test).__name__}.{test._testMethodName}', kind, message)

  def write(self, name: str, kind: str, message: str = '') -> None:
    pickle.dump((name, kind, message[:500], self.of_computations), self._file)
    self._file.flush()
    self.of_computations.clear()


def _record(results: _Results, context_class: type) -> None:
  """Has each call in contexts of a class leave its result."""
  from tests.helpers import engines

  invoke = context_class.invoke  # type: ignore[attr-defined]

  def recorded(self: Any, comp: Any, arg: Any) -> Any:
    value = invoke(self, comp, arg)
    if asyncio.iscoroutine(value):
      return awaited(value)
    return noted(value)

  async def awaited(value: Any) -> Any:
    return noted(await value)

  def noted(value: Any) -> Any:
    results.of_computations.append(engines.plain(value))
    return value

  context_class.invoke = recorded  # type: ignore[attr-defined]


def _use_engine(tff: Any) -> type:
  """Redirects TFF's functions that make contexts; returns the engine's class of contexts."""
  from tff_adaptive import engine

  class Async(tff.framework.AsyncExecutionContext):  # Some programs use its executors themselves.
    def __init__(self, default_num_clients: int):
      executors = tff.framework.local_cpp_executor_factory(default_num_clients=default_num_clients)
      super().__init__(executors)
      self._context = engine.GraphContext(default_num_clients=default_num_clients)

    async def invoke(self, comp: Any, arg: Any) -> Any:
      return self._context.invoke(comp, arg)

  def maker(is_async: bool, sets: bool) -> Callable:
    kind: type = engine.GraphContext
    if is_async:
      kind = Async

    def make(default_num_clients: int = 0, *_: Any, **__: Any) -> Any:
      context = kind(default_num_clients=default_num_clients)
      if sets:
        return tff.framework.set_default_context(context)
      return context

    return make

  for module in [m for name, m in sys.modules.items() if name.startswith('tensorflow_federated')]:
    for name in dir(module):
      match = _CONTEXT_MAKER.fullmatch(name)
      if match:
        setattr(module, name, maker(match[2] == 'async', match[1] == 'set'))
  engine.set_graph_context()
  return engine.GraphContext


def _run_cells(path: pathlib.Path, folder: str, results: _Results) -> None:
  """Runs a notebook's cells of code, up to the first that fails, without lines of the shell's."""
  module = sys.modules['__main__'] = types.ModuleType('__main__')
  cells = [c for c in json.loads(path.read_text('utf-8'))['cells'] if c['cell_type'] == 'code']
  for i, cell in enumerate(cells):
    text = ''.join(cell['source'])
    file = pathlib.Path(folder, f'cell_{i}.py')  # AutoGraph reads it.
    file.write_text(re.sub(r'(?m)^(\s*)[!%].*$', r'\1pass', text), encoding='utf-8')
    try:
      exec(compile(file.read_text('utf-8'), str(file), 'exec'), module.__dict__)
    except Exception as e:
      traceback.print_exc()
      return results.write(f'cell_{i}', 'failed', f'{type(e).__name__}: {e}'[:500])
    results.write(f'cell_{i}', 'passed')


def _child(path: pathlib.Path, context: str, output: pathlib.Path) -> None:
  """What the process of a file does; it never returns."""
  code = 1
  try:
    os.setsid()
    # TFF ends its workers so; a shell has its jobs in the background ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(output.with_suffix('.log'), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    import absl.testing.absltest
    import tensorflow as tf
    import tensorflow_federated as tff
    from absl import flags

    results = _Results(output.with_suffix('.new'))
    with temporary_folders.folder('tff-suite-') as folder:
      os.chdir(folder)
      os.environ['MPLBACKEND'] = 'agg'
      # TFF's synchronous context calls it, and so do tests that make contexts of their own.
      _record(results, tff.framework.AsyncExecutionContext)
      if context == 'engine':
        _record(results, _use_engine(tff))
      else:
        # The default context has a thread since TFF was imported, which did not survive the fork.
        tff.backends.native.set_sync_local_cpp_execution_context()

      def run_tests(*_: Any, **__: Any) -> None:
        loader = unittest.TestLoader()
        loader.loadTestsFromModule(sys.modules['__main__']).run(results)

      flags.FLAGS([str(path), f'--test_tmpdir={folder}'])
      absl.testing.absltest.main = tf.test.main = run_tests
      sys.path.insert(0, str(path.parent))
      if path.suffix == '.ipynb':
        _run_cells(path, folder, results)
      else:
        runpy.run_path(str(path), run_name='__main__')
      code = 0
  except BaseException:
    traceback.print_exc()
  finally:
    os._exit(code)


def run(path: pathlib.Path, context: str, output: pathlib.Path, seconds: float) -> str:
  """Runs a file in a process; returns how it ended. Whatever it started ends with it."""
  output.parent.mkdir(parents=True, exist_ok=True)
  process = _PROCESSES.Process(target=_child, args=(path, context, output))
  process.start()
  try:
    process.join(seconds)
    if process.exitcode is None:
      how = 'out of time'
    else:
      how = f'exit code {process.exitcode}'
  finally:
    with contextlib.suppress(ProcessLookupError):
      os.killpg(process.pid, signal.SIGKILL)  # type: ignore[arg-type]
    process.join()
  outcomes_file = output.with_suffix('.new')
  if how != 'exit code 0':
    with outcomes_file.open('ab') as file:
      pickle.dump(('file', 'failed', how), file)
  outcomes_file.replace(output)
  return how


def read(output: pathlib.Path) -> Outcomes:
  """What was kept of a file."""
  outcomes: Outcomes = {}
  with output.open('rb') as file, contextlib.suppress(EOFError):
    while True:
      name, *outcome = pickle.load(file)
      outcomes[name] = Outcome(*outcome)
  return outcomes


def differences(native: Outcomes, engine: Outcomes, again: Outcomes) -> Iterator[tuple[str, str]]:
  """Tests that the engine alone does not pass, or whose results differ, with what differs."""
  for name, wanted in native.items():
    actual = engine.get(name, Outcome('failed', 'it did not run'))
    if wanted.kind != 'passed':
      continue
    if actual.kind != 'passed':
      yield name, actual.message or actual.kind
    elif _differ(again.get(name, wanted), wanted) < _differ(actual, wanted):
      yield name, _OTHER
  if 'file' in engine and 'file' not in native:
    yield 'file', engine['file'].message


def reason(name: str, expected: dict[str, str]) -> str:
  """Why a difference is expected; empty if it is not."""
  return next((why for mask, why in expected.items() if fnmatch.fnmatchcase(name, mask)), '')


def _compared(path: pathlib.Path, name: str, work: pathlib.Path, seconds: float) -> list[Outcomes]:
  """Runs a file in each context in which it was not run, if there is something to compare."""
  outcomes: list[Outcomes] = [{}, {}, {}]
  for i, context in enumerate(_CONTEXTS):
    output = work / context / f'{name}.pickle'
    nothing_passed = i and all(one.kind != 'passed' for one in outcomes[0].values())
    if nothing_passed or (i == 2 and not list(differences(*outcomes))):
      break
    start = time.monotonic()
    how = 'kept'
    if not output.exists():
      how = run(path, context, output, seconds)
    outcomes[i] = read(output)
    counts = collections.Counter(one.kind for one in outcomes[i].values())
    said = ', '.join(f'{counts[kind]} {kind}' for kind in ('failed', 'passed', 'skipped'))
    print(f'{name} {context}: {said}; {how}, {time.monotonic() - start:.0f} s', flush=True)
  return outcomes


def main(argv: list[str] | None = None) -> int:
  """Runs the command."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--source', type=pathlib.Path, required=True, help='a checkout')
  parser.add_argument('--work', type=pathlib.Path, default=pathlib.Path('runs/tff_suite'))
  parser.add_argument('--only', default='', help='files whose path holds this regular expression')
  parser.add_argument('--seconds', type=float, default=1200, help='the time limit of a file')
  given = parser.parse_args(argv)
  source = given.source.resolve()
  work = given.work.resolve()
  names = programs(source, given.only)
  if not names:
    parser.error(f'--source={given.source} has no tests of TFF programs that --only names')
  wheel = pathlib.Path(sysconfig.get_path('purelib'), 'tensorflow_federated')
  make_overlay(source, wheel, work / 'overlay')
  sys.path[:0] = [str(work / 'overlay'), str(source)]
  os.environ['PYTHONPATH'] = os.pathsep.join(sys.path)  # Of the server that forks.
  _PROCESSES.set_forkserver_preload(['tensorflow_federated'])
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # What runs ends too.
  expected = json.loads(EXPECTED.read_text(encoding='utf-8'))
  counts: collections.Counter[str] = collections.Counter()
  for i, name in enumerate(names):
    print(f'{i + 1}/{len(names)} ', end='')
    of_version = _compared(source / name, name, work, given.seconds)
    for context, outcomes in zip(_CONTEXTS, of_version[:2]):
      counts.update(f'{context} {one.kind}' for one in outcomes.values())
    for test, what in differences(*of_version):
      if what == _OTHER:
        how = 'results differ'
      else:
        how = 'failed in the engine alone'
      why = reason(f'{name}::{test}', expected[how])
      kind = 'expected' if why else 'UNEXPECTED'
      counts[f'{kind}, {how}'] += 1
      print(f'{kind}: {name}::{test}: {why or what}')
  print('\n'.join(f'{count} {what}' for what, count in sorted(counts.items())))
  return int(any(what.startswith('UNEXPECTED') for what in counts))


if __name__ == '__main__':
  sys.exit(main())
