"""Makes small mistakes in a module, one at a time, and looks whether its tests notice.

    python -m tests.faults.mutations --modules=schedules,partition --sample=40 --seed=1

A server process imports TensorFlow and TFF once and computes nothing with them (their threads
would not survive a fork). For each mutant it forks a child; the child imports this project with the
mutated text in place of one module, and runs the tests of that module. A mutant is killed if a
test fails or the time runs out, and survives if all pass. First comes a child with no mistake,
whose tests must pass. The mistakes are those of `tests.faults.mutants`; `--modules=by_hand` makes
those that a person thought of, `BY_HAND`.

`--record=FILE` keeps the results, and what is in it is not run again unless `--again=survived`
(or `all`). Without `--sample` all mutants are run. `--only=72:24` runs those of a line and column.
"""

import argparse
import contextlib
import dataclasses
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import time
import types

from tests.faults import by_hand, mutants

_PACKAGE = 'tff_adaptive'


@dataclasses.dataclass(frozen=True)
class Target:
  """A module and the tests that should notice its mistakes, the likeliest first.

  Attributes:
    path: The module.
    tests: Files or names of tests.
    select: Which of them, as pytest's -k has it; all if empty.
  """

  path: str
  tests: tuple[str, ...]
  select: str = ''


def _target(path: str, *more_tests: str, select: str = '') -> tuple[str, Target]:
  """Returns a module's short name, and the module with the tests next to it and `more_tests`."""
  name = os.path.basename(path)
  own = f'tests/{path}/{name}_test.py'.replace(f'/{name}/', '/')
  short = '_'.join(path.split('/')[-2:]) if name == 'base' else name
  return short, Target(f'{path}.py', (*([own] if os.path.exists(own) else []), *more_tests), select)


_ORACLE = 'tests/integration/corrections_oracle_test.py'
_REGISTERED = 'tests/tff_adaptive/algorithms/registered_test.py'
_LOCAL = 'tests/tff_adaptive/client/local_training_test.py'
_STORE = 'tests/tff_adaptive/training/state_store_test.py'
_STATE_FILE = 'tests/tff_adaptive/training/state_file_test.py'
_ADAPTIVE = 'tests/tff_adaptive/optimizers/adaptive_test.py'
TARGETS = dict(
  (
    _target('tff_adaptive/schedules'),
    _target('tasks/data/partition'),
    _target('tff_adaptive/training/metrics_log'),
    _target('tff_adaptive/training/state_store', _STATE_FILE),
    _target('tff_adaptive/training/state_file', _STORE),
    _target('tff_adaptive/training/serialization', _STATE_FILE, _STORE),
    _target('tff_adaptive/training/state_migration', _STATE_FILE),
    _target('tff_adaptive/optimizers/base', _ADAPTIVE),
    _target('tff_adaptive/optimizers/adaptive'),
    _target('tff_adaptive/corrections/base', _REGISTERED, _ORACLE, select='base or scaffold'),
    _target('tff_adaptive/corrections/ada_best', _ORACLE, select='ada_best'),
    _target('tff_adaptive/corrections/fed_dyn', _ORACLE, select='fed_dyn'),
    _target('tff_adaptive/corrections/fed_prox', _ORACLE, select='fed_prox'),
    _target('tff_adaptive/corrections/scaffold', _ORACLE, select='scaffold'),
    _target('tff_adaptive/client/batching'),
    _target('tff_adaptive/client/batch_sources', _LOCAL),
    _target('tff_adaptive/client/local_training'),
  )
)
# These start processes of their own, where the module is as it is.
_NOT_SEEN = 'not million_clients and not killed_at_any_instant'
BY_HAND = 'by_hand'


class _Mutated(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
  """Imports one module from another text; the rest of the import system is as it was."""

  def __init__(self, module: str, path: str, text_path: str):
    super().__init__(module, path)
    self._text_path = text_path

  def find_spec(
    self, fullname: str, path: object, target: object = None
  ) -> importlib.machinery.ModuleSpec | None:
    del path, target
    return importlib.util.spec_from_loader(fullname, self) if fullname == self.name else None

  def get_code(self, fullname: str) -> types.CodeType:
    # AutoGraph reads functions again from the file of their code: it must find the mistake too.
    del fullname
    with open(self._text_path, encoding='utf-8') as file:
      return compile(file.read(), self._text_path, 'exec', dont_inherit=True)


def _run_tests(target: Target, text: str, folder: str) -> None:
  """What a child does: never returns, exits with pytest's code."""
  os.setsid()
  log = os.open(os.path.join(folder, 'log'), os.O_WRONLY | os.O_CREAT)
  os.dup2(log, 1)
  os.dup2(log, 2)
  text_path = os.path.join(folder, 'mutant.py')
  with open(text_path, 'w', encoding='utf-8') as file:
    file.write(text)
  os.environ['TMPDIR'] = tempfile.tempdir = folder
  module = target.path.removesuffix('.py').replace('/', '.')
  sys.meta_path.insert(0, _Mutated(module, os.path.abspath(target.path), text_path))
  import pytest

  code = 1
  try:
    flags = ['-x', '-q', '-p', 'no:cacheprovider', '-p', 'no:xdist', f'--basetemp={folder}/tmp']
    flags += ['-k', f'({target.select}) and {_NOT_SEEN}' if target.select else _NOT_SEEN]
    code = int(pytest.main([*flags, *target.tests]))
  finally:
    sys.stdout.flush()
    os._exit(code)


class Child:
  """A forked child that runs the tests against a text."""

  def __init__(self, target: Target, text: str, seconds: float):
    self._folder = tempfile.TemporaryDirectory(prefix='mutant')
    self._start = time.monotonic()
    self._deadline = self._start + seconds
    self._pid = os.fork()
    if not self._pid:
      _run_tests(target, text, self._folder.name)

  def poll(self) -> tuple[str, float, str] | None:
    """Returns result, seconds and the first failure's name, or None while it runs.

    The result is 'survived', 'killed' or 'timeout'.
    """
    pid, status = os.waitpid(self._pid, os.WNOHANG)
    seconds = time.monotonic() - self._start
    if pid:
      result = 'survived' if status == 0 else 'killed'
    elif time.monotonic() > self._deadline:
      result = 'timeout'
    else:
      return None
    # Also what the tests started.
    with contextlib.suppress(ProcessLookupError):
      os.killpg(self._pid, signal.SIGKILL)
    if not pid:
      os.waitpid(self._pid, 0)
    with open(os.path.join(self._folder.name, 'log'), encoding='utf-8', errors='replace') as file:
      lines = file.read().splitlines()
    failed = [line for line in lines if line.startswith(('FAILED', 'ERROR'))]
    self._folder.cleanup()
    return result, round(seconds, 1), ' '.join([*failed, *lines[-1:]][0].split()[1:2])


def _import_the_slow_ones() -> None:
  """Imports what all tests share, from elsewhere; nothing of this project, and no computation."""
  import hypothesis  # noqa: F401
  import pytest  # noqa: F401
  import tensorflow as tf
  import tensorflow_federated  # noqa: F401
  from tensorflow.python.eager import context

  del tf
  assert not context.context()._initialized, 'TensorFlow has threads: a child would hang'
  gc.freeze()  # Else each child's collector copies all of it.
  own = [name for name in sys.modules if name.split('.')[0] in (_PACKAGE, 'tasks')]
  assert not own, f'{own} would not be read again'


class Record:
  """The results so far, in a JSON file that is written after each."""

  def __init__(self, path: str | None):
    self._path = path
    self.results: dict[str, dict[str, dict]] = {}
    self.seconds: dict[tuple[str, ...], float] = {}  # Of tests without a mistake.
    self.is_whole = True  # Whether no module was left out.
    if path and os.path.exists(path):
      with open(path, encoding='utf-8') as file:
        self.results = json.load(file)

  def add(self, module: str, mutant: str, outcome: tuple[str, float, str]) -> None:
    result, seconds, by = outcome
    self.results.setdefault(module, {})[mutant] = dict(result=result, seconds=seconds, by=by)
    if self._path:
      with open(f'{self._path}.new', 'w', encoding='utf-8') as file:
        json.dump(self.results, file, indent=1, sort_keys=True)
      os.replace(f'{self._path}.new', self._path)


def _wait(children: dict[str, Child], most: int) -> list[tuple[str, tuple[str, float, str]]]:
  """Waits until fewer than `most` children run; returns what the others came to."""
  ended = []
  while True:
    for name, child in list(children.items()):
      if outcome := child.poll():
        ended.append((name, outcome))
        del children[name]
    if len(children) < most:
      return ended
    time.sleep(0.05)


def _read(path: str) -> str:
  with open(path, encoding='utf-8') as file:
    return file.read()


def attack(module: str, given: argparse.Namespace, record: Record) -> None:
  """Runs a module's mutants, if its tests pass without one, and adds to the record."""
  if module == BY_HAND:
    for name, mistake in by_hand.MISTAKES.items():
      target = Target(mistake.path, mistake.tests)
      source = _read(mistake.path)
      assert source.count(mistake.right) == 1, f'{name}: the passage is not, or twice, in the file'
      wrong = mutants.Mutant(name, source.replace(mistake.right, mistake.wrong))
      _try_all(module, target, source, [wrong], given, record)
    return
  target = TARGETS[module]
  source = _read(target.path)
  chosen = mutants.mutants(source)
  if given.sample:  # A larger sample of the same seed holds a smaller one.
    random.Random(f'{given.seed} {module}').shuffle(chosen)
    chosen = chosen[: given.sample]
  _try_all(module, target, source, chosen, given, record)


def _try_all(
  module: str,
  target: Target,
  source: str,
  chosen: list[mutants.Mutant],
  given: argparse.Namespace,
  record: Record,
) -> None:
  """Runs those of the chosen mutants that are not recorded, `given.jobs` at a time."""
  known = record.results.get(module, {})
  again = {'': (), 'survived': ('survived',), 'all': ('survived', 'killed', 'timeout')}[given.again]
  chosen = [
    m
    for m in chosen
    if m.name.startswith(given.only) and (m.name not in known or known[m.name]['result'] in again)
  ]
  if not chosen:
    return
  children: dict[str, Child] = {}
  if target.tests not in record.seconds:
    children[''] = Child(target, source, 600)
    ((_, (result, seconds, by)),) = _wait(children, 1)
    if result != 'survived':
      sys.stdout.write(f'{module}: its tests do not pass without a mistake: {by}\n')
      record.is_whole = False
      return
    record.seconds[target.tests] = seconds
  seconds = record.seconds[target.tests]
  sys.stdout.write(f'{module}: {len(chosen)} mutants, {seconds} s without a mistake\n')
  for mutant in [*chosen, None]:
    for name, outcome in _wait(children, given.jobs if mutant else 1):
      record.add(module, name, outcome)
      sys.stdout.write(f'{module}:{name}: {" ".join(map(str, outcome))}\n')
      sys.stdout.flush()
    if mutant:
      children[mutant.name] = Child(target, mutant.source, 2 * seconds + 15)


def _summarise(record: Record) -> int:
  """Writes a line for each module; returns how many mutants survived."""
  survived = 0
  for module, results in record.results.items():
    alive = [name for name, r in results.items() if r['result'] == 'survived']
    survived += len(alive)
    share = 100 * (1 - len(alive) / len(results))
    sys.stdout.write(f'{module}: {len(results)} mutants, {share:.1f} % killed\n')
    for name in alive:
      attacked = by_hand.MISTAKES[name] if module == BY_HAND else TARGETS[module]
      sys.stdout.write(f'  survived {attacked.path}:{name}\n')
  return survived


def main() -> int:
  """Runs the command; exit code 1 if a mutant survived or a module was left out."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--modules', default=','.join((BY_HAND, *TARGETS)))
  parser.add_argument('--sample', type=int, default=0, help='mutants of each module; 0 for all')
  parser.add_argument('--seed', type=int, default=1)
  parser.add_argument('--jobs', type=int, default=1)
  parser.add_argument('--record')
  parser.add_argument('--again', choices=('', 'survived', 'all'), default='')
  parser.add_argument('--only', default='')
  given = parser.parse_args()
  names = given.modules.split(',')
  if unknown := [name for name in names if name not in (BY_HAND, *TARGETS)]:
    parser.error(f'unknown modules {unknown}; known are {", ".join((BY_HAND, *TARGETS))}')
  record = Record(given.record)
  _import_the_slow_ones()
  for module in names:
    attack(module, given, record)
  return int(_summarise(record) > 0 or not record.is_whole)


if __name__ == '__main__':
  sys.exit(main())
