"""Damages a finished run's files, many times, and looks at what resuming makes of it.

Each try copies a run of ten rounds, damages one of its files and trains on to round fourteen.
Either the run is refused, with a `ValueError` of one line that names the run's folder, and nothing
is touched; or it ends with such an error when something damaged is read; or it ends equal, to the
bit, to the undisturbed run. There is nothing else. (metrics.csv carries no checksums: a digit
that became another stays, and only the states are compared.)

    python -m tests.faults.damage --tries=2000 --seed=1

`--what=bit,cut,zeros,gone` chooses the damage: a flipped bit, a cut file, a kilobyte of zeros, no
file. `--store=shards` attacks a run whose client states are in shards.
"""

import argparse
import collections
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable

from tests.faults import small_run
from tff_adaptive.runs import sharded_store

KINDS = ('bit', 'cut', 'zeros', 'gone')


def damage(path: str, kind: str, rng: random.Random) -> str:
  """Damages a file; returns what was done."""
  if kind == 'gone':
    os.remove(path)
    return 'removed'
  size = os.path.getsize(path)
  where = rng.randrange(size)
  with open(path, 'r+b') as file:
    if kind == 'cut':
      file.truncate(where)
      return f'cut to {where} bytes'
    file.seek(where)
    if kind == 'zeros':
      file.write(bytes(min(1024, size - where)))
      return f'zeros from {where}'
    byte, bit = file.read(1)[0], rng.randrange(8)
    file.seek(where)
    file.write(bytes([byte ^ (1 << bit)]))
    return f'bit {bit} of byte {where}'


class Attack:
  """A finished run, to be damaged again and again.

  Attributes:
    files: Those to damage, by their path in the run's folder.
  """

  def __init__(self, folder: str, store: str = 'disk'):
    """Trains the run, and the undisturbed longer one, below `folder`."""
    self._folder, self._store = folder, store
    self._run = os.path.join(folder, 'run')
    small_run.train(self._run, 10, store=store)
    whole = os.path.join(folder, 'whole')
    shutil.copytree(self._run, whole)
    small_run.train(whole, 14, store=store)
    self._expected = small_run.outcome(whole)
    shards = os.path.join('checkpoints', sharded_store.FOLDER)
    names = os.listdir(os.path.join(self._run, shards)) if store == 'shards' else ()
    self.files = ['checkpoints/state.sqlite', 'metrics.csv', 'checkpoints/state.sqlite']
    self.files += [
      os.path.join(shards, name) for name in sorted(names) if name != sharded_store.STAGED
    ]

  def attempt(self, name: str, harm: Callable[[str], str], resume_from: str = 'latest') -> str:
    """Damages a copy of the run and trains on.

    Args:
      name: The file to damage, in the run's folder.
      harm: Damages the file at a path and says how.
      resume_from: The checkpoint to resume from.

    Returns:
      'refused', 'refused, and went on with the file back', 'found when read' or 'equal'.

    Raises:
      AssertionError: If it is neither.
    """
    copy = os.path.join(self._folder, 'copy')
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(self._run, copy)
    done = harm(os.path.join(copy, name))
    before = small_run.contents(copy)
    try:
      small_run.train(copy, 14, resume_from, self._store)
    except ValueError as error:
      text = str(error)
      assert copy in text, f'{name}, {done}: {text}'
      assert '\n' not in text, f'{name}, {done}: {text}'
      after = small_run.contents(copy)
      if len(after) > len(before) and 'damaged' in text:  # An event file: the run had begun.
        return 'found when read'
      if after != before and self._store == 'shards':
        # Shards before the damaged one have a new owner: with the file back, the run goes on.
        shutil.copy(os.path.join(self._run, name), os.path.join(copy, name))
        small_run.train(copy, 14, resume_from, self._store)
        assert small_run.outcome(copy) == self._expected, f'{name}, {done}: ended otherwise'
        return 'refused, and went on with the file back'
      assert after == before, (
        f'{name}, {done}: refused, but these were changed: {_differing(before, after)}'
      )
      return 'refused'
    except Exception as error:
      raise AssertionError(f'{name}, {done}: {error!r}') from error
    found = small_run.outcome(copy)
    start = 1 if name == 'metrics.csv' else 0
    assert found[start:] == self._expected[start:], (
      f'{name}, {done}: ended otherwise, without a word'
    )
    return 'equal'


def _differing(before: dict[str, str], after: dict[str, str]) -> list[str]:
  return [path for path in {**before, **after} if before.get(path) != after.get(path)]


def main() -> int:
  """Runs the command; exit code 1 if a damage went unnoticed."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tries', type=int, default=500)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--what', default=','.join(KINDS))
  parser.add_argument('--store', choices=('disk', 'shards'), default='disk')
  given = parser.parse_args()
  rng, counts = random.Random(given.seed), collections.Counter()
  with tempfile.TemporaryDirectory() as folder:
    attack = Attack(folder, given.store)
    for _ in range(given.tries):
      name = rng.choice(attack.files)
      kind = rng.choice(given.what.split(','))
      try:
        counts[name, kind, attack.attempt(name, lambda p, k=kind: damage(p, k, rng))] += 1
      except AssertionError as error:
        counts[name, kind, 'WRONG'] += 1
        sys.stdout.write(f'{error}\n')
  return report(counts)


def report(counts: collections.Counter[tuple[str, str, str]]) -> int:
  """Prints how often each (what, kind of damage, result) was; 1 if a result was WRONG."""
  for (name, kind, result), count in sorted(counts.items()):
    sys.stdout.write(f'{name} {kind}: {count} {result}\n')
  return int(any(result == 'WRONG' for _, _, result in counts))


if __name__ == '__main__':
  sys.exit(main())
