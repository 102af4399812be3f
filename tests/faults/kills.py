"""Kills a run at random instants, resumes it until it is done, and compares it with one in peace.

    python -m tests.faults.kills --tries=200 --seed=1
    python -m tests.faults.kills --tries=50 --store=shards

A try is a whole run of 60 rounds, killed with SIGKILL again and again. At the end rows, server
state and client states must be equal to the bit, and nothing temporary may be left in the folder.
"""

import argparse
import contextlib
import glob
import os
import random
import subprocess
import sys
import tempfile
import time

from tests.faults import small_run
from tff_adaptive.training import state_shards

_PROGRAM = (
  'import sys; from tests.faults import small_run;'
  ' small_run.train(sys.argv[1], int(sys.argv[2]), store=sys.argv[3])'
)
LEFT = [*('checkpoints', 'config.json', 'curves.png', 'metrics.csv', 'summary.json', 'tensorboard')]


def kill_until_done(
  folder: str,
  rng: random.Random,
  longest: float,
  most: int = 1000,
  store: str = 'disk',
  rounds: int = 60,
) -> int:
  """Starts the run again and again and kills it after random times; returns how many kills.

  Args:
    folder: The run's folder.
    rng: Draws the times.
    longest: Seconds after its first sign of life until when the run may be killed.
    most: After so many kills it is left in peace.
    store: Where the run keeps its client states.
    rounds: Of the run.
  """
  for kills in range(most + 1):
    before = _files(folder)
    command = [sys.executable, '-c', _PROGRAM, folder, str(rounds), store]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while process.poll() is None and _files(folder) == before:
      time.sleep(0.002)
    try:
      _, error = process.communicate(timeout=rng.uniform(0, longest) if kills < most else None)
    except subprocess.TimeoutExpired:
      process.kill()
      process.communicate()
      continue
    if process.returncode:
      raise AssertionError(error.decode())
    return kills
  raise AssertionError('unreachable')


def _files(folder: str) -> dict[str, int]:
  """The files of checkpoints and client states, and when they were written."""
  found = {}
  for path in glob.glob(os.path.join(folder, 'checkpoints', '**', '*.sqlite'), recursive=True):
    with contextlib.suppress(FileNotFoundError):
      found[path] = os.stat(path).st_mtime_ns
  return found


def check(folder: str, whole: tuple) -> None:
  """Raises AssertionError unless a run that was killed equals the one in peace."""
  assert small_run.outcome(folder) == whole, f'{folder} differs'
  assert sorted(os.listdir(folder)) == LEFT, os.listdir(folder)
  left = glob.glob('**', root_dir=os.path.join(folder, 'checkpoints'), recursive=True)
  of_shards = [name for name in left if name.startswith('client_states')]
  assert [name for name in left if name not in of_shards] == ['state.sqlite']
  if of_shards:
    shards = [f'client_states/shard-{i:02d}.sqlite' for i in range(state_shards.NUM_SHARDS)]
    others = ['client_states', 'client_states/shards.json', 'client_states/staged']
    assert sorted(of_shards) == sorted([*shards, *others]), of_shards


def main() -> int:
  """Runs the command; exit code 1 if a run ended otherwise."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tries', type=int, default=50)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--longest', type=float, default=1.0, help='seconds')
  parser.add_argument('--store', choices=['disk', 'shards'], default='disk')
  given = parser.parse_args()
  rng, kills, wrong = random.Random(given.seed), 0, 0
  with tempfile.TemporaryDirectory() as folder:
    whole = os.path.join(folder, 'whole')
    small_run.train(whole, 60, store=given.store)
    expected = small_run.outcome(whole)
    for i in range(given.tries):
      name = os.path.join(folder, str(i))
      try:
        kills += kill_until_done(name, rng, given.longest, store=given.store)
        check(name, expected)
      except AssertionError as error:
        wrong += 1
        sys.stdout.write(f'{error}\n')
  sys.stdout.write(f'{given.tries} runs, {kills} kills, {wrong} ended otherwise\n')
  return int(wrong > 0)


if __name__ == '__main__':
  sys.exit(main())
