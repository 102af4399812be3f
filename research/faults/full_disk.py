"""Lets the disk fill up at any byte of a run, makes room, and goes on; needs the right to mount.

A try trains the small run on a file system in memory that is full after some kilobytes. It must end
with a `StateError` or `ResumeError` of one line that names a file of the run, and with more
room the same call must end equal, to the bit, to the run in peace.

    sudo python -m research.faults.full_disk --tries=100 --seed=1
"""

import argparse
import collections
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from tests.faults import small_run
from tff_adaptive.runs import errors

ROUNDS = 12


@contextlib.contextmanager
def small_disk(folder: str, kilobytes: int) -> Iterator[None]:
  """A context in which a folder is a file system of its own; OSError if this may not be."""
  size = ['-t', 'tmpfs', '-o', f'size={kilobytes}k', 'tmpfs', folder]
  if subprocess.run(['mount', *size], capture_output=True).returncode:
    raise PermissionError('file systems cannot be mounted here')
  try:
    yield
  finally:
    subprocess.run(['umount', folder], check=True)


def attempt(folder: str, kilobytes: int, store: str, expected: tuple) -> str:
  """Trains on a disk of a size, then with room; returns 'full' or 'enough'.

  Raises:
    AssertionError: If it ends otherwise.
  """
  with small_disk(folder, kilobytes):
    run, result = os.path.join(folder, 'run'), 'enough'
    try:
      small_run.train(run, ROUNDS, store=store)
    except (errors.StateError, errors.ResumeError) as error:
      result, text = 'full', str(error)
      assert folder in text, f'{kilobytes} kB: {text}'
      named = text.partition(f'{folder}/run')[2].partition(':')[0].partition(' ')[0]
      result = f'full at {os.path.basename(named)}'
      assert '\n' not in text, f'{kilobytes} kB: {text}'
    except Exception as error:
      raise AssertionError(f'{kilobytes} kB: {error!r}') from error
    subprocess.run(['mount', '-o', 'remount,size=64m', folder], check=True)
    try:
      small_run.train(run, ROUNDS, store=store)
    except Exception as error:
      raise AssertionError(f'{kilobytes} kB, {result}, with room again: {error!r}') from error
    assert small_run.outcome(run) == expected, f'{kilobytes} kB, {result}: ended otherwise'
    return result


def main() -> int:
  """Runs the command; exit code 1 if a run ended otherwise."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tries', type=int, default=50)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--store', choices=('disk', 'shards'), default='disk')
  given = parser.parse_args()
  rng = random.Random(given.seed)
  counts: collections.Counter[str] = collections.Counter()
  with tempfile.TemporaryDirectory() as folder:
    whole, disk = os.path.join(folder, 'whole'), os.path.join(folder, 'disk')
    os.mkdir(disk)
    small_run.train(whole, ROUNDS, store=given.store)
    expected = small_run.outcome(whole)
    most = sum(os.path.getsize(os.path.join(p, n)) for p, _, names in os.walk(whole) for n in names)
    for _ in range(given.tries):
      try:
        counts[attempt(disk, 4 + rng.randrange(most // 256), given.store, expected)] += 1
      except AssertionError as error:
        counts['WRONG'] += 1
        sys.stdout.write(f'{error}\n')
  sys.stdout.write(f'{dict(counts)}\n')
  return int(counts['WRONG'] > 0)


if __name__ == '__main__':
  sys.exit(main())
