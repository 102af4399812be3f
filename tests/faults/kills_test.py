"""Runs that are killed five times each, one for each of some seeds.

`TRIES=200 SEED=1 python -m pytest tests/faults/kills_test.py` kills so many of each store.
"""

import os
import random

import pytest

from tests.faults import kills, small_run

TRIES, SEED = int(os.environ.get('TRIES', '1')), int(os.environ.get('SEED', '2'))


@pytest.mark.parametrize('seed', range(SEED, SEED + TRIES))
@pytest.mark.parametrize('store', ['memory', 'shards'])
def test_a_run_that_was_killed_and_resumed_equals_one_in_peace(tmp_path, store, seed):
  small_run.train(str(tmp_path / 'whole'), kills.ROUNDS, store=store)
  folder = str(tmp_path / 'killed')
  assert kills.kill_until_done(folder, random.Random(seed), store) >= 3  # A busy machine spares it.
  kills.check(folder, small_run.outcome(str(tmp_path / 'whole')))
