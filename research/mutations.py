"""Makes small mistakes in the product, one at a time, and looks whether its tests notice.

    python -m research.mutations --sample=200 --seed=1 --record=mutants.json
    python -m research.mutations --modules=tff_adaptive/schedules.py,tasks/data --jobs=2

Draws the mistakes of `research.faults.mutants` over all modules of the product, or over some files
and folders. A larger sample of the same seed holds the smaller one. A mutant's tests are those of
the file that mirrors its module, then of the files that import the module or mirror one that does,
then the others of its folder, without those that are marked slow; those that killed most mutants
run first.

A server process imports TensorFlow and TFF once and computes nothing with them (their threads
would not survive a fork). For each mutant it forks a child; the child imports this project with the
mutated text in place of one module, and runs the tests. A mutant is killed if a test fails or the
time runs out, and survives if all pass. A test that fails must pass in a child with no mistake.
Time is that of a processor: 300 s, or 5 s and thrice that of tests that have passed.

`--record=FILE` keeps the results, and what is in it is not run again, unless the module has another
text now, or `--again=survived` asks for it.
"""

import argparse
import ast
import collections
import functools
import gc
import hashlib
import json
import math
import os
import pathlib
import random
import sys
import time
from typing import Any

from research.faults import mutants
from research.faults.mutation_child import Child, Target

PRODUCT = ('tff_adaptive', 'tasks', 'scripts')
_MOST_FILES = 6  # Of tests, for a mutant.
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
  importing = [test for test, names in tests.items() if name in names]
  near = sorted(importing, key=lambda test: (test.parent != mirror.parent, str(test)))
  product = [pair for folder in PRODUCT for pair in _imported(folder, '.py').items()]
  users = [_mirror(user) for user, names in product if name in names]
  beside = [test for test in tests if test.parent == mirror.parent]
  order = dict.fromkeys(test for test in (mirror, *near, *users, *beside) if test in tests)
  return tuple(map(str, order))[:_MOST_FILES]


class Record:
  """The results so far, in a JSON file that is written after each."""

  def __init__(self, path: str | None):
    self._path = path
    self.results: dict[str, dict[str, Any]] = {}  # 'path:mutant' -> result, seconds, by, text.
    if path and os.path.exists(path):
      self.results = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))

  def has(self, name: str, text: str, again: str) -> bool:
    """Whether a mutant of the present text of a module was run, and need not be again."""
    entry = self.results.get(name)
    return entry is not None and entry['text'] == text and entry['result'] != again

  def add(self, name: str, outcome: tuple[str, float, str], text: str) -> None:
    """Adds what a mutant came to."""
    result, seconds, by = outcome
    self.results[name] = dict(result=result, seconds=seconds, by=by, text=text)
    sys.stdout.write(f'{name}: {result} {seconds} {by}\n')
    sys.stdout.flush()
    if self._path:
      new = pathlib.Path(f'{self._path}.new')
      new.write_text(json.dumps(self.results, indent=1, sort_keys=True), encoding='utf-8')
      new.replace(self._path)


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
      one = self.target._replace(tests=(test,)) if '::' in by else self.target
      ((_, (without, seconds, other)),) = _wait({'': Child(one, self.source, 1800, self.kills)}, 1)
      self._pass[by] = without == 'survived' and seconds < self.limit
      if not self._pass[by]:
        sys.stdout.write(f'{name}: fails without a mistake too, or takes as long: {other}\n')
    self.kills[by] += 1
    return outcome if self._pass[by] else None


def attack(path: pathlib.Path, chosen: list[mutants.Mutant], record: Record, jobs: int) -> bool:
  """Runs mutants of a module; returns whether its tests pass without one."""
  module = _Module(path)
  if not module.target.tests:
    for one in chosen:
      record.add(f'{path}:{one.name}', ('survived', 0.0, 'no tests'), module.text)
    return True
  children: dict[str, Child] = {}
  sound = True
  todo: list[mutants.Mutant | None] = [*chosen, None]
  for mutant in todo:
    for name, outcome in _wait(children, jobs if mutant else 1):
      if judged := module.judge(name, outcome):
        record.add(name, judged, module.text)
      sound &= judged is not None
    if mutant:
      children[f'{path}:{mutant.name}'] = module.start(mutant)
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


def main() -> int:
  """Runs the command; exit code 1 if a mutant survived or a module was left out."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--modules', default=','.join(PRODUCT), help='files and folders')
  parser.add_argument('--sample', type=int, default=0, help='mutants in all; 0 for all')
  parser.add_argument('--seed', type=int, default=1)
  parser.add_argument('--jobs', type=int, default=1)
  parser.add_argument('--record')
  parser.add_argument('--again', choices=('', 'survived'), default='')
  given = parser.parse_args()
  record, drawn = Record(given.record), draw(given.modules.split(','), given.sample, given.seed)
  _import_the_slow_ones()
  by_path: dict[pathlib.Path, list[mutants.Mutant]] = {}
  for path, mutant in drawn:
    text = _digest(path.read_text(encoding='utf-8'))
    if not record.has(f'{path}:{mutant.name}', text, given.again):
      by_path.setdefault(path, []).append(mutant)
  left_out = [path for path, some in by_path.items() if not attack(path, some, record, given.jobs)]
  names = [f'{path}:{mutant.name}' for path, mutant in drawn]
  results = {name: record.results[name]['result'] for name in names if name in record.results}
  counts = collections.Counter(results.values())
  for name in (name for name, result in results.items() if result == 'survived'):
    sys.stdout.write(f'survived {name}\n')
  share = 100 * (1 - counts['survived'] / max(1, len(results)))
  found = ', '.join(f'{counts[result]} {result}' for result in _RESULTS)
  sys.stdout.write(f'{len(results)} of {len(drawn)} run: {found}; {share:.1f} % noticed\n')
  return int(counts['survived'] > 0 or bool(left_out))


if __name__ == '__main__':
  sys.exit(main())
