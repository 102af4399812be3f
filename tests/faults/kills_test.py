"""A run killed five times, as `kills` does it by the hundred."""

import random

import pytest

from tests.faults import kills, small_run


@pytest.mark.parametrize('store', ['disk', 'shards'])
def test_a_run_that_was_killed_and_resumed_equals_one_in_peace(tmp_path, store):
  rounds = 60
  small_run.train(str(tmp_path / 'whole'), rounds, store=store)
  whole = small_run.outcome(str(tmp_path / 'whole'))
  folder = str(tmp_path / 'killed')
  attacked = kills.kill_until_done(folder, random.Random(2), rounds / 10, 5, store, rounds)
  assert attacked >= 3  # A busy machine may spare it the others.
  kills.check(folder, whole)
