"""The course of a round, without a cluster; with one: ray_context_test."""

import types

import pytest

from tff_adaptive.engine.cluster import errors, ray_round, schedule

ray = pytest.importorskip('ray')


@pytest.mark.parametrize(
  ('subrounds', 'said'),
  [
    (range(2, 3), 'subround 3 has taken 0 s: another worker does it too'),
    (range(2, 4), 'subrounds 3 to 4 have taken 0 s: another worker does them too'),
  ],
)
def test_what_is_late_is_said_in_its_number(subrounds, said, monkeypatch):
  monkeypatch.setattr(ray_round.time, 'monotonic', lambda: 5.0)
  lines = []
  a_round = object.__new__(ray_round.Round)
  a_round._pool = types.SimpleNamespace(report=lines.append, line=str, retried=0)
  monkeypatch.setattr(a_round, '_submit', lambda call: None)
  a_round._begin_again(ray_round.Call((0, 0), subrounds, None, 5.0))
  assert lines == [said]
  assert a_round._pool.retried == len(subrounds)


@pytest.mark.parametrize('is_look_due', [False, True])
def test_the_cluster_is_looked_at_also_while_calls_end_all_the_time(is_look_due, monkeypatch):
  seen, ready, again = [], [[], ['a'], ['b']], []
  a_round = object.__new__(ray_round.Round)
  a_round._calls, a_round._results, a_round._trained = {}, {}, 0
  a_round._workload = types.SimpleNamespace(
    calls=types.SimpleNamespace(merge=None),
    parts=[[0], [1]],
    stage=types.SimpleNamespace(num_aggregates=0),
  )
  a_round._pool = types.SimpleNamespace(
    wait=lambda calls: ready.pop(0),
    look=lambda calls: seen.append(len(ready)) or ['late'],
    get=lambda references: references,
    is_look_due=is_look_due,
    bytes_received=0,
  )

  def end(reference):
    a_round._trained += 1

  monkeypatch.setattr(a_round, '_begin_calls', lambda: None)
  monkeypatch.setattr(a_round, '_end_call', end)
  monkeypatch.setattr(a_round, '_begin_again', again.append)
  a_round.run()
  assert seen == ([2, 1, 0] if is_look_due else [2])
  assert again == ['late'] * len(seen)


def _merging(get):
  """A round of two trained subrounds whose sums are large, on two nodes; its pool has `get`."""
  a_round = object.__new__(ray_round.Round)
  a_round._workload = types.SimpleNamespace(stage=types.SimpleNamespace(num_aggregates=1))
  a_round._tree, a_round._is_near, a_round._sums = schedule.MergeTree(2), False, {}
  a_round._trained_sums = {(0, 0): 'a', (0, 1): 'b'}
  a_round._pool = types.SimpleNamespace(get=get, report=lambda line: None, line=str, is_here=False)
  a_round._merge = lambda node, one, other: one + other
  for node, sums in a_round._trained_sums.items():
    a_round._know(node, sums)
  return a_round


def test_merges_that_no_worker_ends_lose_the_round():
  waited = []

  def get(references, times):
    waited.append((references, times))
    raise ray.exceptions.GetTimeoutError('late')

  with pytest.raises(errors.WorkersLost, match='no worker has ended the merges'):
    _merging(get)._merged()
  assert waited == [(['ab'], 1), (['ab'], 10)]


def test_an_error_of_a_merge_is_raised_as_that_of_a_call():
  failed = []

  def get(references, times):
    raise ray.exceptions.RayTaskError('merge', 'traceback', ValueError('no sum'))

  a_round = _merging(get)
  a_round._pool.fail = lambda error, what: failed.append((str(error.cause), what))
  a_round._merged()
  assert failed == [('no sum', 'a merge')]


def test_a_node_that_joins_or_leaves_meanwhile_does_not_change_what_is_merged():
  a_round = _merging(lambda references, times: references)
  for is_here in (True, False):
    a_round._pool.is_here = is_here
    assert a_round._merged() == ['ab']
  a_round._is_near, a_round._sums = True, {(0, 0): 'a', (0, 1): 'b'}
  for is_here in (True, False):
    a_round._pool.is_here = is_here
    assert a_round._merged() == ['a', 'b']
