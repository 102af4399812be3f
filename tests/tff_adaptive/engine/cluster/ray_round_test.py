"""The course of a round, without a cluster; with one: ray_context_test."""

import types

import pytest

from tff_adaptive.engine.cluster import ray_round

pytest.importorskip('ray')


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
