"""What a pool says of its workers, without a cluster; with one: ray_context_test."""

import pytest

from tff_adaptive.execution.cluster import ray_pool, ray_round, ray_worker

pytest.importorskip('ray')


@pytest.fixture
def pool():
  """A pool that has joined nothing; its lines are in `pool.lines`."""
  made = object.__new__(ray_pool.RayPool)
  made.occasion, made.lines, made.retried, made._longest = 'round 7', [], 0, [0.0, 0.0]
  made.report = made.lines.append
  return made


@pytest.mark.parametrize(
  ('subrounds', 'said'),
  [
    (range(2, 3), 'subround 3 was done again, by process 5'),
    (range(2, 4), 'subrounds 3 to 4 were done again, by process 5'),
    (range(0), 'a merge of level 1 was done again, by process 5'),
  ],
)
def test_what_was_done_again_is_said_in_its_number(pool, subrounds, said):
  call = ray_round.Call((1, 0), subrounds, None, 0.0)
  pool.note(call, ray_worker.Info(1, 'process 5', ray_worker.versions(), 1.0, 0))
  assert pool.lines == [f'Round 7: a worker was lost; {said}']
