"""The course of a round, without a cluster; with one: ray_context_test."""

import types

import numpy as np
import pytest
import tensorflow_federated as tff

from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import errors, ray_round, schedule

ray = pytest.importorskip('ray')


def _of_clients(*keys):
  """A round of one subround, with a client for each key; what it submits is in `submitted`."""
  type_spec = tff.types.FederatedType(np.int32, tff.CLIENTS)
  a_round = object.__new__(ray_round.Round)
  source = object()
  a_round._workload = types.SimpleNamespace(
    inputs=[[client_references.ClientReference(source, key) for key in keys]],
    stage=types.SimpleNamespace(input_types=[type_spec]),
    parts=[list(range(len(keys)))],
  )
  lines, a_round.submitted = [], []
  a_round._pool = types.SimpleNamespace(
    say=lines.append,
    line=str,
    lines=lines,
    counters={'subrounds_retried': 0},
    settings=None,
    leave_out=lambda error, then: False,
    on_nodes=lambda references: f' on {"".join(references)}',
  )
  a_round._submit = a_round.submitted.append
  return a_round


def test_a_late_call_is_given_again_and_given_up_at_last(monkeypatch):
  monkeypatch.setattr(ray_round.time, 'monotonic', lambda: 65.0)
  a_round = _of_clients('ann', 'bob')
  call = ray_round.Call((0, 0), range(1), None, 5.0)
  another = ray_round.Call((0, 1), range(1, 2), None, 5.0)
  a_round._calls = {'a': (call, []), 'b': (another, []), 'c': (call, [])}
  a_round._begin_again(call)
  assert a_round._pool.lines == [
    'subround 1 (clients ann, bob) on ac: 60 s so far; another worker does the same'
  ]
  (again,) = a_round.submitted
  assert (call.is_late, again.is_late, again.copies, again.began) == (True, False, 1, 65.0)
  again.copies = 4
  with pytest.raises(
    errors.WorkersLost, match=r'\(clients ann, bob\) has not ended in any of 5 workers on ac'
  ):
    a_round._begin_again(again)


def test_the_clients_of_a_call_that_ended_its_workers_are_named(monkeypatch):
  a_round = _of_clients('ann', 'bob')
  a_round._calls = {'x': (ray_round.Call((0, 0), range(1), None, 5.0), [None, None, 'x'])}

  def get(reference):
    raise ray.exceptions.WorkerCrashedError

  monkeypatch.setattr('ray.get', get)
  with pytest.raises(errors.WorkersLost, match=r'\(clients ann, bob\) ended all .* given on x'):
    a_round._end_call('x')


def _merging(get):
  """A round of four trained subrounds whose sums are merged; its pool has `get`."""
  a_round = object.__new__(ray_round.Round)
  stage = types.SimpleNamespace(num_aggregates=1, merged=lambda one, other: f'({one}{other})')
  a_round._workload = types.SimpleNamespace(stage=stage)
  a_round._tree, a_round._sums = schedule.MergeTree(4), {}
  a_round._trained_sums = {(0, i): np.array(name) for i, name in enumerate('abcd')}
  a_round._pool = types.SimpleNamespace(
    get=get,
    say=lambda text: None,
    leave_out=lambda error, then: False,
    late_after=lambda: 60.0,
    counters={'bytes_from_workers': 0},
  )
  a_round._merge = lambda node, one, other: np.array(f'[{one}{other}]')
  for node, sums in a_round._trained_sums.items():
    a_round._know(node, sums)
  return a_round


def test_workers_merge_but_for_the_last_two():
  a_round = _merging(lambda references, most, what: references)
  assert a_round._merged() == '([ab][cd])'


@pytest.mark.parametrize('error', [ray.exceptions.GetTimeoutError, ray.exceptions.OutOfMemoryError])
def test_merges_that_no_worker_ends_or_has_memory_for_are_done_here(error):
  waited = []

  def get(references, most, what):
    waited.append(most)
    if most == 60.0:
      raise error('late')
    return references

  assert _merging(get)._merged() == '((ab)(cd))'
  assert waited == [60.0, np.inf]
