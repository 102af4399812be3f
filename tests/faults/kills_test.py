"""A run killed five times, as `kills` does it by the hundred."""

import random

import pytest

from tests.faults import kills, small_run


# In peace each run takes seconds, so that a kill that comes late meets it too.
@pytest.mark.parametrize('store, longest, rounds', [('disk', 0.2, 500), ('shards', 0.1, 60)])
def test_a_run_that_was_killed_and_resumed_equals_one_in_peace(tmp_path, store, longest, rounds):
  small_run.train(str(tmp_path / 'whole'), rounds, store=store)
  whole = small_run.outcome(str(tmp_path / 'whole'))
  folder = str(tmp_path / 'killed')
  attacked = kills.kill_until_done(folder, random.Random(2), longest, 5, store, rounds)
  assert attacked >= 3
  kills.check(folder, whole)
