"""A run killed five times, as `kills` does it by the hundred."""

import random

from tests.faults import kills, small_run


def test_a_run_that_was_killed_and_resumed_equals_one_in_peace(tmp_path):
  small_run.train(str(tmp_path / 'whole'), 60)
  whole = small_run.outcome(str(tmp_path / 'whole'))
  folder = str(tmp_path / 'killed')
  assert kills.kill_until_done(folder, random.Random(2), longest=0.2, most=5) >= 3
  kills.check(folder, whole)
