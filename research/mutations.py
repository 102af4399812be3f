"""Makes small mistakes in a module, one at a time, and looks whether its tests notice.

    python -m research.mutations --modules=schedules,partition --sample=40 --seed=1

A server process imports TensorFlow and TFF once and computes nothing with them (their threads
would not survive a fork). For each mutant it forks a child; the child imports this project with the
mutated text in place of one module, and runs the tests of that module, those first that killed most
mutants. A mutant is killed if a test fails or the time runs out, and survives if all pass. Time is
that of a processor: 5 s, and thrice that of a first child with no mistake, whose tests must pass.
The mistakes are those of `research.faults.mutants`; `--modules=by_hand` makes those that a person
thought of, `BY_HAND`.

`--record=FILE` keeps the results, and what is in it is not run again, unless the module has another
text now, or `--again=survived` (or `all`) asks for it. Without `--sample` all mutants are run.
`--only=72:24` runs those of a line and column.
"""

import argparse
import collections
import gc
import hashlib
import json
import math
import os
import random
import sys
import time

from research.faults import by_hand, mutants
from research.faults.mutation_child import Child
from research.faults.mutation_targets import TARGETS, Target

_PACKAGE = 'tff_adaptive'
_RESULTS = ('survived', 'killed', 'timeout', 'stuck')
BY_HAND = 'by_hand'


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
  own = [name for name in sys.modules if name.split('.')[0] in (_PACKAGE, 'tff_adaptive_tasks')]
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

  def of(self, module: str, source: str) -> dict[str, dict]:
    """The results of a module's mutants, if its text was the present one."""
    text = _digest(source)
    return {n: r for n, r in self.results.get(module, {}).items() if r.get('text') == text}

  def add(self, module: str, mutant: str, outcome: tuple[str, float, str], source: str) -> None:
    result, seconds, by = outcome
    entry = dict(result=result, seconds=seconds, by=by, text=_digest(source))
    self.results.setdefault(module, {})[mutant] = entry
    if self._path:
      with open(f'{self._path}.new', 'w', encoding='utf-8') as file:
        json.dump(self.results, file, indent=1, sort_keys=True)
      os.replace(f'{self._path}.new', self._path)


def _digest(source: str) -> str:
  return hashlib.sha256(source.encode()).hexdigest()[:12]


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
  known = record.of(module, source)
  again = {'': (), 'survived': ('survived',), 'all': _RESULTS}[given.again]
  chosen = [
    m
    for m in chosen
    if m.name.startswith(given.only) and (m.name not in known or known[m.name]['result'] in again)
  ]
  if not chosen:
    return
  kills = collections.Counter(r['by'] for r in known.values() if r['result'] == 'killed')
  children: dict[str, Child] = {}
  if target.tests not in record.seconds:
    children[''] = Child(target, source, 1800, kills)
    ((_, (result, seconds, by)),) = _wait(children, 1)
    if result != 'survived':
      sys.stdout.write(f'{module}: its tests do not pass without a mistake: {by}\n')
      record.is_whole = False
      return
    record.seconds[target.tests] = seconds
  seconds = record.seconds[target.tests]
  limit = math.ceil(3 * seconds + 5)
  sys.stdout.write(f'{module}: {len(chosen)} mutants, {seconds} s without a mistake\n')
  for mutant in [*chosen, None]:
    for name, outcome in _wait(children, given.jobs if mutant else 1):
      record.add(module, name, outcome, source)
      kills[outcome[2]] += 1
      sys.stdout.write(f'{module}:{name}: {" ".join(map(str, outcome))}\n')
      sys.stdout.flush()
    if mutant:
      children[mutant.name] = Child(target, mutant.source, limit, kills)


def _summarise(record: Record) -> int:
  """Writes a line for each module; returns how many mutants survived."""
  survived = 0
  for module, entries in record.results.items():
    if module == BY_HAND:
      results, count = entries, len(by_hand.MISTAKES)
    else:
      source = _read(TARGETS[module].path)
      names = {m.name for m in mutants.mutants(source)}
      results = {n: r for n, r in record.of(module, source).items() if n in names}
      count = len(names)
    counts = collections.Counter(r['result'] for r in results.values())
    share = 100 * (1 - counts['survived'] / max(1, len(results)))
    found = ', '.join(f'{counts[result]} {result}' for result in _RESULTS)
    sys.stdout.write(f'{module}: {len(results)} of {count} run: {found}; {share:.1f} % noticed\n')
    survived += counts['survived']
    for name in (name for name, r in results.items() if r['result'] == 'survived'):
      path = by_hand.MISTAKES[name].path if module == BY_HAND else TARGETS[module].path
      sys.stdout.write(f'  survived {path}:{name}\n')
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
