"""Runs are killed at random instants and resumed until they are done, as if nothing had happened.

Rows, server state and client states must be equal to the bit, and no temporary file may be left.
The kernel ends the run, at any instruction, by a timer that the run has set after some rounds, so
the speed of the machine does not matter. `FAULT_TRIES=200 FAULT_SEED=1 python -m pytest
tests/faults/kills_test.py` kills 200 runs.
"""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.faults import small_run
from tff_adaptive import training

# Its processes are forked from one that has imported this: an import takes longer than a run.
PROCESSES = multiprocessing.get_context('forkserver')
PROCESSES.set_forkserver_preload([__name__])
TRIES = int(os.environ.get('FAULT_TRIES', '1'))
SEED = int(os.environ.get('FAULT_SEED', '2'))
ROUNDS = 60
MOST_KILLS = 5
LEFT = ['checkpoints', 'config.json', 'curves.png', 'metrics.csv', 'summary.json', 'tensorboard']


class _Death(training.Callback):
  """Ends the process after some rounds, at an instant of the four to come: one saves them."""

  def __init__(self, rounds: float):
    self._whole = int(rounds)
    self._part = rounds % 1

  def begin(self, run: training.RunInfo) -> None:
    del run
    self._began = time.monotonic()
    self._done = 0

  def round_end(self, row: Mapping[str, Any]) -> None:
    del row
    self._done += 1
    if self._done == self._whole:
      four_rounds = 4 * (time.monotonic() - self._began) / self._done
      signal.setitimer(signal.ITIMER_REAL, four_rounds * self._part + 1e-6)


def train_and_die(folder: str, after: float) -> None:
  """Trains or resumes the run in a folder, and ends without a word after so many rounds."""
  signal.signal(signal.SIGALRM, signal.SIG_DFL)
  small_run.train(folder, ROUNDS, callbacks=[_Death(after)])


def kill_until_done(folder: str, rng: random.Random) -> int:
  """Starts the run again and again, and kills it at random times; returns how often."""
  for kills in range(MOST_KILLS + 1):
    after = rng.uniform(1, ROUNDS / 10)
    if kills == MOST_KILLS:
      after = ROUNDS + 2  # It never comes.
    process = PROCESSES.Process(target=train_and_die, args=(folder, after))
    process.start()
    process.join()
    if process.exitcode != -signal.SIGALRM:
      assert process.exitcode == 0, f'a run ended with {process.exitcode}; its error is above'
      return kills
  raise AssertionError('unreachable')


@pytest.mark.parametrize('seed', range(SEED, SEED + TRIES))
def test_a_run_that_was_killed_and_resumed_equals_one_in_peace(tmp_path, seed):
  folder = str(tmp_path / 'killed')
  whole = str(tmp_path / 'whole')
  small_run.train(whole, ROUNDS)
  assert kill_until_done(folder, random.Random(seed)) >= 3  # A busy machine spares it.
  assert small_run.outcome(folder) == small_run.outcome(whole)
  assert sorted(os.listdir(folder)) == LEFT
  assert os.listdir(os.path.join(folder, 'checkpoints')) == ['state.sqlite']
