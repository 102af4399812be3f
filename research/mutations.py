"""Makes small mistakes in the product, one at a time, and looks whether its tests notice.

    python -m research.mutations --sample=200 --seed=1 --record=mutants.json
    python -m research.mutations --modules=tff_adaptive/schedules.py,tasks/data --jobs=2

Draws the mistakes of `research.faults.mutants` over all modules of the product, or over some files
and folders. A larger sample of the same seed holds the smaller one. First run the tests that killed
most mutants, then those of the file that mirrors the module, of the files that import it or mirror
one that does, and the others of its folder; slow ones never.

A server process imports TensorFlow and TFF once and computes nothing with them (their threads
would not survive a fork). For each mutant it forks a child; the child imports this project with the
mutated text in place of one module, and runs the tests. A mutant is killed if a test fails or the
time runs out, and survives if all pass. A test that fails must pass in a child with no mistake.
Time is that of a processor: 300 s, or 5 s and thrice that of tests that have passed.

`--record=FILE` (mutants.json) keeps the results. What is in it is not run again, unless the module
has another text now, or `--again=survived` asks for it.
"""

import argparse
import ast
import collections
import fcntl
import functools
import gc
import hashlib
import json
import math
import multiprocessing
import pathlib
import random
import sys
import time
from typing import Any

from research.faults import mutants
from research.faults.mutation_child import Child, Target

PRODUCT = ('tff_adaptive', 'tasks', 'scripts')
_MOST_FILES = 40  # Of tests, for a mutant.
_FORK = multiprocessing.get_context('fork')
_FIRST_LIMIT = 300  # Processor seconds of a mutant, before what its tests take is known.
_RESULTS = ('survived', 'killed', 'timeout', 'stuck')


def module_name(path: pathlib.Path) -> str:
  """'tasks/digits.py' -> 'tff_adaptive_tasks.digits'."""
  parts = [*path.parts[:-1], *([] if path.stem == '__init__' else [path.stem])]
  return '.'.join(['tff_adaptive_tasks' if parts[0] == 'tasks' else parts[0], *parts[1:]])


@functools.cache
def _imported(folder: str, ending: str) -> dict[pathlib.Path, set[str]]:
  """File below a folder -> the names that it imports."""
  found = {}
  for path in sorted(pathlib.Path(folder).rglob(f'*{ending}')):
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
      if isinstance(node, ast.ImportFrom):
        inside = module_name(path.parents[node.level - 1] / '__init__.py') if node.level else ''
        module = '.'.join(filter(None, (inside, node.module)))
        names |= {module, *(f'{module}.{alias.name}' for alias in node.names)}
      elif isinstance(node, ast.Import):
        names |= {alias.name for alias in node.names}
    found[path] = names
  return found


def _mirror(path: pathlib.Path) -> pathlib.Path:
  return pathlib.Path('tests') / path.with_name(f'{path.stem}_test.py')


def tests_of(path: pathlib.Path) -> tuple[str, ...]:
  """The test files that should notice a mistake in a module, the likeliest first."""
  mirror, name, tests = _mirror(path), module_name(path), _imported('tests', '_test.py')
  found = [_imported(folder, ending) for folder in PRODUCT for ending in ('.py', '.pyi')]
  users = [user for some in found for user, names in some.items() if name in names]
  packages = {module_name(user) for user in users if user.suffix == '.pyi'}
  direct = [test for test, names in tests.items() if name in names]
  importing = [*direct, *(test for test, names in tests.items() if packages & names)]
  near = sorted(importing, key=lambda test: (test not in direct, test.parent != mirror.parent))
  beside = [test for test in tests if test.parent == mirror.parent]
  order = [test for test in (mirror, *near, *map(_mirror, users), *beside) if test in tests]
  return tuple(map(str, dict.fromkeys(order)))[:_MOST_FILES]


class Record:
  """The results so far, in a JSON file that is written after each."""

  def __init__(self, path: pathlib.Path):
    self._path = path
    self.results = self.read()  # 'path:mutant' -> result, seconds, by, text.

  def read(self) -> dict[str, dict[str, Any]]:
    """The results in the file."""
    return json.loads(self._path.read_text(encoding='utf-8')) if self._path.exists() else {}

  def has(self, name: str, text: str, again: str) -> bool:
    """Whether a mutant of the present text of a module was run, and need not be again."""
    entry = self.results.get(name)
    return entry is not None and entry['text'] == text and entry['result'] != again

  def add(self, name: str, outcome: tuple[str, float, str], text: str) -> None:
    """Adds what a mutant came to."""
    result, seconds, by = outcome
    with open(f'{self._path}.lock', 'w') as lock:
      fcntl.flock(lock, fcntl.LOCK_EX)
      self.results = {**self.results, **self.read()}  # With those of the other processes.
      self.results[name] = dict(result=result, seconds=seconds, by=by, text=text)
      new = pathlib.Path(f'{self._path}.new')
      new.write_text(json.dumps(self.results, indent=1, sort_keys=True), encoding='utf-8')
      new.replace(self._path)
    sys.stdout.write(f'{name}: {result} {seconds} {by}\n')
    sys.stdout.flush()


def draw(modules: list[str], sample: int, seed: int) -> list[tuple[pathlib.Path, mutants.Mutant]]:
  """The mutants of some files and folders, or so many of them, by module."""
  every = []
  for name in modules:
    found = pathlib.Path(name)
    for path in [found] if found.is_file() else sorted(found.rglob('*.py')):
      every += [(path, mutant) for mutant in mutants.mutants(path.read_text(encoding='utf-8'))]
  if sample:
    random.Random(seed).shuffle(every)
    every = sorted(every[:sample], key=lambda pair: str(pair[0]))
  return every


def _wait(child: Child) -> tuple[str, float, str]:
  while not (outcome := child.poll()):
    time.sleep(0.05)
  return outcome


class _Module:
  """A module under attack: what its tests take, and which of them pass without a mistake."""

  def __init__(self, path: pathlib.Path):
    self.path, self.source = path, path.read_text(encoding='utf-8')
    self.text = _digest(self.source)
    self.target = Target(module_name(path), path, tests_of(path))
    self.kills: collections.Counter[str] = collections.Counter()
    self.limit = _FIRST_LIMIT
    self._pass: dict[str, bool] = {}

  def start(self, mutant: mutants.Mutant) -> Child:
    """Starts the tests with a mistake."""
    return Child(self.target, mutant.source, self.limit, self.kills)

  def judge(self, name: str, outcome: tuple[str, float, str]) -> tuple[str, float, str] | None:
    """What a mutant came to, or None if that says nothing: its tests fail without it as well."""
    result, seconds, by = outcome
    if result == 'survived':
      self.limit = min(self.limit, math.ceil(3 * seconds + 5))
      return outcome
    if by not in self._pass:
      test = by.partition('[')[0]  # The mistake may have changed what its parameters are called.
      is_known = '::' in by or by in self.target.tests  # A file, if it cannot be collected.
      one = self.target._replace(tests=(test,)) if is_known else self.target
      without, seconds, other = _wait(Child(one, self.source, 1800, self.kills))
      self._pass[by] = without == 'survived' and seconds < self.limit
      if not self._pass[by]:
        sys.stdout.write(f'{name}: fails without a mistake too, or takes as long: {other}\n')
    self.kills[by] += 1
    return outcome if self._pass[by] else None


def attack(path: pathlib.Path, chosen: list[mutants.Mutant], record: Record) -> bool:
  """Runs mutants of a module; returns whether its tests pass without one."""
  module = _Module(path)
  sound = True
  for mutant in chosen:
    name = f'{path}:{mutant.name}'
    if outcome := module.judge(name, _wait(module.start(mutant))):
      record.add(name, outcome, module.text)
    sound &= outcome is not None
  return sound


def _digest(source: str) -> str:
  return hashlib.sha256(source.encode()).hexdigest()[:12]


def _import_the_slow_ones() -> None:
  """Imports what all tests share, from elsewhere; nothing of this project, and no computation."""
  import hypothesis  # noqa: F401
  import pytest  # noqa: F401
  import tensorflow_federated  # noqa: F401
  from tensorflow.python.eager import context

  assert not context.context()._initialized, 'TensorFlow has threads: a child would hang'
  gc.freeze()  # Else each child's collector copies all of it.
  own = [name for name in sys.modules if name.split('.')[0] in ('tff_adaptive', 'scripts')]
  assert not own, f'{own} would not be read again'


def _part(modules: list[tuple[Any, Any]], record: Record) -> None:
  """What a process does; its exit code counts the modules whose tests fail without a mistake."""
  sys.exit(sum(not attack(path, some, record) for path, some in modules))


def main() -> int:
  """Runs the command; exit code 1 if a mutant survived or a module was left out."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--modules', default=','.join(PRODUCT), help='files and folders')
  parser.add_argument('--sample', type=int, default=0, help='mutants in all; 0 for all')
  parser.add_argument('--seed', type=int, default=1)
  parser.add_argument('--jobs', type=int, default=1)
  parser.add_argument('--record', type=pathlib.Path, default=pathlib.Path('mutants.json'))
  parser.add_argument('--again', choices=('', 'survived'), default='')
  given = parser.parse_args()
  record, drawn = Record(given.record), draw(given.modules.split(','), given.sample, given.seed)
  _import_the_slow_ones()
  by_path: dict[pathlib.Path, list[mutants.Mutant]] = {}
  for path, mutant in drawn:
    text = _digest(path.read_text(encoding='utf-8'))
    if not record.has(f'{path}:{mutant.name}', text, given.again):
      by_path.setdefault(path, []).append(mutant)
  parts = [[*by_path.items()][i :: given.jobs] for i in range(given.jobs)]
  processes = [_FORK.Process(target=_part, args=(part, record)) for part in parts]
  for process in processes:
    process.start()
  for process in processes:
    process.join()
  done, names = record.read(), [f'{path}:{mutant.name}' for path, mutant in drawn]
  results = {name: done[name]['result'] for name in names if name in done}
  counts = collections.Counter(results.values())
  for name in (name for name, result in results.items() if result == 'survived'):
    sys.stdout.write(f'survived {name}\n')
  share = 100 * (1 - counts['survived'] / max(1, len(results)))
  found = ', '.join(f'{counts[result]} {result}' for result in _RESULTS)
  sys.stdout.write(f'{len(results)} of {len(drawn)} run: {found}; {share:.1f} % noticed\n')
  return int(counts['survived'] > 0 or any(process.exitcode for process in processes))


if __name__ == '__main__':
  sys.exit(main())
