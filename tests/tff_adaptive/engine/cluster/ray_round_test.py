"""The course of a round, without a cluster; with one: ray_context_test."""

import functools
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.helpers import on_ray, subround_runs
from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import errors, ray_pool, ray_round, ray_worker, schedule, subrounds

ray = pytest.importorskip('ray')


def test_workers_that_this_process_plays_load_train_and_merge(graph, monkeypatch):
  """What Ray would send is passed on as it is. Each node has memory for one worker."""
  seen = []
  nodes = ['a' * 56, 'b' * 56]
  room = {'CPU': 5.0, 'memory': 9.0}

  def named(name='', scheduling_strategy=None, **_):
    return name or (scheduling_strategy.node_id, scheduling_strategy.soft)

  def remote(function, asked):
    seen.append((function.__name__, *asked.values()))
    actor = types.SimpleNamespace(remote=function)
    actor.options = lambda **options: seen.append(named(**options)) or actor
    return actor

  about = dict(Alive=True, Resources=room, NodeManagerAddress='10.0.0.2', NodeManagerPort=5)
  here = types.SimpleNamespace(get_node_id=lambda: nodes[0], gcs_address='head:1')
  for place, name, played in (
    *((ray, name, lambda value: value) for name in ('put', 'get')),
    (ray, 'remote', lambda **asked: lambda function: remote(function, asked)),
    (ray, 'wait', lambda left, num_returns, **_: (left[:num_returns], left[num_returns:])),
    (ray, 'get_runtime_context', lambda: here),
    (ray, 'nodes', lambda: [{'NodeID': node, **about} for node in nodes]),
    (ray_worker, '_engine', lambda settings: seen.append('begins') or graph),
    (ray_worker, '_where', lambda: 'here'),
    (ray_worker.private_apis, 'ray_attempt', lambda: 0),
    (ray_pool.joining, 'check_listener', lambda address, seconds: seen.append(address)),
    (ray_pool, '_CALL_SECONDS', 0.0),
    (ray_pool, '_LOOK_SECONDS', np.inf),  # However busy.
  ):
    monkeypatch.setattr(place, name, played)
  pool = ray_pool.RayPool(None, ray_worker.Settings(2, 0, 7), 60.0)
  functions = [('train', 3), ('merge', 1), ('warm_up', 1)]
  assert seen == [*((name, 2, 0, 7, count, 3, 0) for name, count in functions), *2 * ['begins']]
  train = functools.partial(ray_round.train, pool)
  context = subrounds.SubroundContext(5, server=graph, train=train)
  total, doubled = context.invoke(on_ray.double_and_sum(), [1, 2, 3, 4, 5, 6])
  assert (total, list(doubled)) == (42, [2, 4, 6, 8, 10, 12])
  merge = 'merge: sums 1 to 2'  # Two calls at a time; the root's two sums are merged here.
  called = [name for name in seen[5:] if name != 'begins']
  assert called[:4] == [*(f'train: subround {i}' for i in (1, 2, 3)), merge]
  assert min(pool._paces.values()) > 0
  sent = pool.counters['bytes_to_workers'], pool.counters['bytes_from_workers']
  # A client's number and its place in the cohort; its doubled number, and a sum of each call.
  assert sent == (6 * (4 + 4), 6 * 4 + 2 * 4)
  source = subround_runs.Source(dict(zip('abcd', (1, 2, 3, 4))))
  total, doubled = context.invoke(on_ray.double_and_sum(), subround_runs.references(source, 'abcd'))
  assert (total, list(doubled)) == (20, [2, 4, 6, 8])
  lines = []
  pool.report = lines.append
  nodes[1] = 'c' * 56
  pool._look()
  changes = [('bbbbbb', 'is lost; 2 with room left'), ('cccccc', 'has joined; 2 with room')]
  assert lines == [f'Node 10.0.0.2 ({node}) {what}' for node, what in changes]
  assert seen[-4:] == ['head:1', '10.0.0.2:5', (nodes[1], False), 'begins']


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
  lines = []
  a_round.submitted = []
  a_round._pool = types.SimpleNamespace(say=lines.append, line=str, lines=lines, settings=None)
  a_round._pool.counters = {'subrounds_retried': 0}
  a_round._pool.leave_out = lambda error, then: False
  a_round._pool.on_nodes = lambda references: f' on {"".join(references)}'
  a_round._submit = a_round.submitted.append
  return a_round


def test_the_clients_of_a_call_that_ended_its_workers_are_named(monkeypatch):
  a_round = _of_clients('ann', 'bob')
  a_round._calls = {'x': (ray_round.Call((0, 0), range(1), None), [None, None, 'x'])}

  monkeypatch.setattr('ray.get', mock.Mock(side_effect=ray.exceptions.WorkerCrashedError))
  with pytest.raises(errors.WorkersLost, match=r'\(clients ann, bob\) crashed every .* it on x'):
    a_round._end_call('x')
  a_round._workload.inputs = [range(10)]  # Their ids are not known.
  assert a_round._clients(range(10)) == 'clients 1, 2, 3, 4, 5, 6, 7, 8 and 2 more'


def test_a_call_that_memory_ended_is_given_again_and_its_result_counts(monkeypatch):
  a_round = _of_clients('ann')
  call = ray_round.Call((0, 0), range(1), None)
  a_round._calls = {'x': (call, [0, 0, 'x'])}
  pool = a_round._pool
  pool.leave_out = lambda error, then: then == 'subround 1 (client ann) goes to another'
  monkeypatch.setattr('ray.get', mock.Mock(side_effect=ray.exceptions.OutOfMemoryError('')))
  a_round._end_call('x')
  assert (a_round.submitted, a_round._calls) == ([call], {})
  assert pool.counters['subrounds_retried'] == 1
  monkeypatch.setattr('ray.get', lambda reference: mock.Mock(seconds=3.0))
  pool.note = mock.Mock()
  pool.note_pace = mock.Mock()
  a_round._know = mock.Mock()
  a_round._waiting = schedule.Waiting([2.0, 2.0])
  a_round._key = 'key'
  a_round._trained = 0
  a_round._results = {}
  a_round._trained_sums = {}
  other = ray_round.Call((0, 1), range(1, 2), None)
  a_round._calls = {n: (c, [n, f'of {n}', n]) for n, c in zip('xz', (call, other))}
  a_round._end_call('x')
  assert ([*a_round._calls], a_round._trained) == (['z'], 1)
  assert (a_round._results, a_round._trained_sums) == ({0: 'of x'}, {(0, 0): 'x'})
  assert pool.note.mock_calls == [mock.call(mock.ANY, 'subround 1', 1)]
  assert pool.note_pace.mock_calls == [mock.call('key', 1.5)]


def _merging(get, said):
  """A round of four trained subrounds whose sums are merged; its pool has `get`, and says."""
  a_round = object.__new__(ray_round.Round)
  stage = types.SimpleNamespace(num_aggregates=1, merged=lambda one, other: f'({one}{other})')
  a_round._workload = types.SimpleNamespace(stage=stage)
  a_round._tree = schedule.MergeTree(4)
  a_round._sums = {}
  a_round._trained_sums = {(0, i): np.array(name) for i, name in enumerate('abcd')}
  a_round._pool = types.SimpleNamespace(
    get=get,
    say=said.append,
    leave_out=lambda error, then: said.append(then),
    counters={'bytes_from_workers': 0},
  )
  a_round._merge = lambda node, one, other: np.array(f'[{one}{other}]')
  for node, sums in a_round._trained_sums.items():
    a_round._know(node, sums)
  return a_round


def test_merges_that_no_worker_has_memory_for_are_done_here():
  merged = []
  said = []

  def get(references, what):
    merged.append(what)
    if len(merged) == 1:
      raise ray.exceptions.OutOfMemoryError('short')
    return references

  assert _merging(get, said)._merged() == '((ab)(cd))'
  assert merged == ['a merge'] * 2
  assert [str(text).endswith('this process merges the sums') for text in said] == [True]
