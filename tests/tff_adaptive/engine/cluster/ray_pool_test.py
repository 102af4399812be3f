"""What a pool says of its workers, without a cluster; with one: ray_context_test."""

import socket
import types

import pytest

from tff_adaptive.engine.cluster import errors, ray_pool, ray_round, ray_worker

ray = pytest.importorskip('ray')

_NODE = 'ab' * 28


@pytest.fixture
def pool():
  """A pool that has joined nothing; its lines are in `pool.lines`."""
  made = object.__new__(ray_pool.RayPool)
  made.occasion, made.lines, made.retried, made._longest = 'round 7', [], 0, [0.0, 0.0]
  made.report = made.lines.append
  made._patience, made._rooms, made._nodes, made._room = 60.0, {_NODE: 1}, {_NODE: '10.0.0.2'}, 1
  made._look, made._warm_ups, made._left_out = lambda: None, [], set()
  call = types.SimpleNamespace(remote=lambda function, argument: argument)
  call.options = lambda **_: call
  made._remote = {ray_worker.call: call}
  return made


@pytest.mark.parametrize(
  ('subrounds', 'said'),
  [
    (range(2, 3), 'subround 3 was done again, by process 5'),
    (range(2, 4), 'subrounds 3 to 4 were done again, by process 5'),
  ],
)
def test_what_was_done_again_is_said_in_its_number(pool, subrounds, said):
  call = ray_round.Call((1, 0), subrounds, None, 0.0)
  pool.note(call, ray_worker.Info(1, 'process 5', ray_worker.versions(), 1.0, 0))
  assert pool.lines == [f'Round 7: a worker was lost; {said}']


def _waits(monkeypatch, *answers):
  """In place of `ray.wait`: how many calls have ended, each time; returns the timeouts."""
  timeouts, left = [], list(answers)

  def wait(references, timeout):
    timeouts.append(timeout)
    ended = left.pop(0)
    return references[:ended], references[ended:]

  monkeypatch.setattr('ray.wait', wait)
  monkeypatch.setattr('ray.get', lambda references, timeout: references)
  return timeouts


def test_a_worker_that_never_answers_is_given_up_and_said(pool, monkeypatch):
  assert _waits(monkeypatch, 1, 2) == []
  assert pool.each(None, [5, 6, 7]) == [5, 6, 7]
  timeouts = _waits(monkeypatch, 1, 0)
  with pytest.raises(errors.WorkersLost, match='no worker has ended a call for 60 s, 2 are waited'):
    pool.each(None, [5, 6, 7])
  assert timeouts == [60.0, 60.0]
  (line,) = pool.lines
  assert line.startswith('Round 7: no worker has ended a call for 60 s, 2 are waited for: is one')


def test_an_error_of_rays_while_a_worker_is_waited_for_means_that_workers_are_lost(
  pool, monkeypatch
):
  def look():
    raise ray.exceptions.RpcError('the head does not answer')

  _waits(monkeypatch, 0)
  pool._look = look
  with pytest.raises(errors.WorkersLost, match='the head does not answer'):
    pool.each(None, [5])


def test_a_head_that_does_not_listen_is_lost_within_seconds(pool, monkeypatch):
  with socket.socket() as bound:  # It does not listen, and nobody else can at its port.
    bound.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{bound.getsockname()[1]}'
    pool._processes = {'the head of the Ray cluster': address}
    monkeypatch.setattr('ray.nodes', lambda: pytest.fail('Ray would wait for a minute'))
    del pool._look
    expected = f'Round 7: the head of the Ray cluster at {address} is lost .*refused'
    with pytest.raises(errors.WorkersLost, match=expected):
      pool._look()
    bound.listen()
    pool._check_processes()


def test_a_cluster_that_grows_is_asked_for_room_and_none_at_the_end(pool, monkeypatch):
  asked = []
  monkeypatch.setattr('ray.is_initialized', lambda: True)
  monkeypatch.setattr(ray_pool.sdk, 'request_resources', lambda bundles: asked.append(bundles))
  for settings in (ray_worker.Settings(2), ray_worker.Settings(1, 0.5)):
    pool.settings = settings
    pool.ask_for_room(3)
  pool.ask_for_room(0)
  assert asked == [[{'CPU': 2}] * 3, [{'CPU': 1, 'GPU': 0.5}] * 3, []]


def test_a_node_that_dies_while_it_is_asked_says_nothing(pool, monkeypatch):
  pool._rooms['cd' * 28] = 1
  calls = iter(['dead', 'alive'])
  look = types.SimpleNamespace(remote=lambda name: next(calls))
  pool._remote[ray_worker.processes] = types.SimpleNamespace(options=lambda **_: look)

  def get(reference):
    if reference == 'dead':
      raise ray.exceptions.NodeDiedError('it died')
    return ['process 5']

  monkeypatch.setattr('ray.wait', lambda references, **_: (references, []))
  monkeypatch.setattr('ray.get', get)
  assert pool.where('train: subround 1') == ['process 5']


def test_the_last_node_short_of_memory_ends_the_round(pool):
  error = ray.exceptions.OutOfMemoryError(f'killed on the node (IP: 10.0.0.2, ID: {_NODE})')
  with pytest.raises(errors.WorkersLost, match='Round 7: subround 3 needs more memory than a node'):
    pool.leave_out(error, 'subround 3')
  pool._rooms['cd' * 28] = 1
  pool.leave_out(error, 'subround 3')
  assert pool._left_out == {_NODE}
  assert pool.lines == [
    'Round 7: node 10.0.0.2 is short of memory and left out; subround 3 goes to another'
  ]


@pytest.mark.parametrize(
  ('longest', 'copies', 'seconds', 'expected'),
  [
    (0.0, 1, 3599, False),
    (0.0, 1, 3601, True),
    (1.0, 1, 599, False),
    (1.0, 1, 601, True),
    (9.0, 1, 899, False),
    (9.0, 1, 901, True),
    (1.0, 0, 601, False),  # First it is given to another worker.
  ],
)
def test_a_call_hangs_that_takes_far_longer_than_others(
  pool, longest, copies, seconds, expected, monkeypatch
):
  monkeypatch.setattr(ray_pool.time, 'monotonic', lambda: 10000.0)
  pool._longest = [0.0, longest]
  call = ray_round.Call((0, 0), range(1), None, 0.0, copies=copies, first=10000.0 - seconds)
  assert pool.is_overdue(call) == expected


def test_while_workers_start_none_is_given_up(pool, monkeypatch):
  _waits(monkeypatch, 0, 0, 1)
  starting = [True, True]
  pool._is_starting = lambda: starting.pop()
  assert pool.each(None, [5]) == [5]
  assert not pool.lines
  assert not starting


@pytest.mark.parametrize(
  ('longest', 'seconds', 'most'), [(7.0, 0.0, 70.0), (7.0, 90.0, 90.0), (2.0, 9.0, 60.0)]
)
def test_calls_may_take_long_where_others_do_or_there_is_much_to_do(
  pool, monkeypatch, longest, seconds, most
):
  pool._longest = [longest, 0.0]
  timeouts = _waits(monkeypatch, 1)
  pool.each(None, [5], seconds)
  assert timeouts == [most]


def test_a_node_whose_worker_starts_is_waited_for_in_silence(pool, monkeypatch):
  _waits(monkeypatch, 0, 1)
  pool._is_starting = lambda: True
  assert pool.on_each_node(None, 'x') == [('10.0.0.2', 'x')]
  assert not pool.lines


@pytest.mark.parametrize('is_late', [False, True])
def test_a_node_whose_worker_does_not_answer_is_named_while_it_is_waited_for(
  pool, monkeypatch, is_late
):
  _waits(monkeypatch, 0 if is_late else 1)
  assert pool.on_each_node(None, 'x') == [('10.0.0.2', 'x')]
  said = ['Round 7: waiting for a worker of node 10.0.0.2: is it stopped, or busy?']
  assert pool.lines == (said if is_late else [])


def test_a_look_is_due_some_seconds_after_the_last(pool, monkeypatch):
  pool._looked = 100.0
  for now, is_due in ((101.9, False), (102.1, True)):
    monkeypatch.setattr(ray_pool.time, 'monotonic', lambda now=now: now)
    assert pool.is_look_due == is_due
