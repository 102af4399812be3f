"""Kills a run at random instants, resumes it until it is done, and compares it with one in peace.

    python -m tests.faults.kills --tries=200 --seed=1

A try is a whole run of 60 rounds, killed with SIGKILL again and again. At the end rows, server
state and client states must be equal to the bit, and nothing temporary may be left in the folder.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

from tests.faults import small_run

_PROGRAM = 'import sys; from tests.faults import small_run; small_run.train(sys.argv[1], 60)'
LEFT = [*('checkpoints', 'config.json', 'curves.png', 'metrics.csv', 'summary.json', 'tensorboard')]


def kill_until_done(folder: str, rng: random.Random, longest: float, most: int = 1000) -> int:
  """Starts the run again and again and kills it after random times; returns how many kills.

  Args:
    folder: The run's folder.
    rng: Draws the times.
    longest: Seconds after its first sign of life until when the run may be killed.
    most: After so many kills it is left in peace.
  """
  for kills in range(most + 1):
    process = subprocess.Popen([sys.executable, '-c', _PROGRAM, folder], stderr=subprocess.PIPE)
    path = os.path.join(folder, 'checkpoints', 'state.sqlite-journal')
    while process.poll() is None and not os.path.exists(path):
      time.sleep(0.005)
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


def check(folder: str, whole: tuple) -> None:
  """Raises AssertionError unless a run that was killed equals the one in peace."""
  assert small_run.outcome(folder) == whole, f'{folder} differs'
  assert sorted(os.listdir(folder)) == LEFT, os.listdir(folder)
  assert os.listdir(os.path.join(folder, 'checkpoints')) == ['state.sqlite']


def main() -> int:
  """Runs the command; exit code 1 if a run ended otherwise."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tries', type=int, default=50)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--longest', type=float, default=1.0, help='seconds')
  given = parser.parse_args()
  rng, kills, wrong = random.Random(given.seed), 0, 0
  with tempfile.TemporaryDirectory() as folder:
    whole = os.path.join(folder, 'whole')
    small_run.train(whole, 60)
    expected = small_run.outcome(whole)
    for i in range(given.tries):
      name = os.path.join(folder, str(i))
      try:
        kills += kill_until_done(name, rng, given.longest)
        check(name, expected)
      except AssertionError as error:
        wrong += 1
        sys.stdout.write(f'{error}\n')
  sys.stdout.write(f'{given.tries} runs, {kills} kills, {wrong} ended otherwise\n')
  return int(wrong > 0)


if __name__ == '__main__':
  sys.exit(main())
