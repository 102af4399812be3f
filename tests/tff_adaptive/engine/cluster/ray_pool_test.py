"""What a pool and its context ask for and say, without a cluster; with one: ray_context_test."""

import functools
import math
import socket
import types

import pytest
import tensorflow as tf

from tff_adaptive import engine
from tff_adaptive.devices import threads
from tff_adaptive.engine.cluster import errors, joining, ray_pool, ray_round, ray_worker

ray = pytest.importorskip('ray')

_NODE = 'ab' * 28


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'workers': 0}, 'workers must be at least 1, found 0'),
    ({'cpus_per_worker': 0}, 'cpus_per_worker must be at least 1'),
    ({'gpus_per_worker': 1.5}, 'gpus_per_worker is 1.5; it must be a fraction of 1'),
    ({'gpus_per_worker': math.nan}, 'gpus_per_worker is nan; it must be a fraction of 1'),
    ({'memory_per_worker': -1}, 'memory_per_worker must be finite and at least 0, found -1'),
    ({'subrounds': 0}, 'subrounds must be at least 1'),
    ({'patience': 0}, 'patience must be finite and above 0'),
    ({'address': 'local', 'gpus_per_worker': 2}, 'no GPU can be used'),  # This machine has none.
  ],
)
def test_arguments_are_checked_before_a_cluster_is_joined(options, message, monkeypatch):
  monkeypatch.setattr(tf.config, 'list_physical_devices', lambda kind: [])
  monkeypatch.setattr(joining, 'join', lambda *unused: pytest.fail('a cluster was joined'))
  with pytest.raises(ValueError, match=message):
    engine.RayContext(**{'address': 'auto', **options})


def test_a_context_asks_for_what_it_is_told_and_leaves(monkeypatch):
  asked = []
  pool = types.SimpleNamespace(run=None, each=None, on_each_node=None, ask_for_room=asked.append)
  leave = functools.partial(asked.append, 'left')
  for place, name, made in ((joining, 'join', leave), (ray_pool, 'RayPool', pool)):
    monkeypatch.setattr(place, name, lambda *given, made=made: asked.append(given) or made)
  monkeypatch.setattr(threads, 'num_processors', lambda: 8)
  options = {'cpus_per_worker': 2, 'memory_per_worker': 1.5, 'patience': 9.0}
  elsewhere = engine.RayContext('auto', workers=6, **options)
  elsewhere.close()
  here, _ = engine.RayContext(), engine.RayContext(cpus_per_worker=3)
  assert (elsewhere._subrounds, here._subrounds) == (6, 4)
  wanted = [('auto', 12, False), (6, (2, 0, 15 * 10**8), 9.0), 6, 0, 'left']
  wanted += [('local', 8, False), (None, (1, 0, 0), 60.0)]
  assert asked == [*wanted, ('local', 6, False), (None, (3, 0, 0), 60.0)]


@pytest.fixture
def pool(monkeypatch):
  """A pool that has joined nothing; its lines are in `pool.lines`, its time is `pool.now`."""
  made = object.__new__(ray_pool.RayPool)
  made.occasion, made.lines, made._longest = 'round 7', [], [0.0, 0.0]
  made.counters, made._left_out = {'subrounds_retried': 0}, set()
  made.report = made.lines.append
  made._patience, made._rooms, made._nodes, made._room = 60.0, {_NODE: 1}, {_NODE: '10.0.0.2'}, 1
  made._look, made._looked, made.now = lambda: None, 0.0, 1000.0
  call = types.SimpleNamespace(remote=lambda function, argument: argument)
  call.options = lambda **_: call
  made._remote = {ray_worker.call: call}
  monkeypatch.setattr(ray_pool.time, 'monotonic', lambda: made.now)
  return made


def _waits(pool, monkeypatch, *answers):
  """In place of `ray.wait`: how many calls have ended, after 20 s each time."""
  left = list(answers)

  def wait(references, num_returns, timeout):
    pool.now += 20
    ended = left.pop(0)
    return references[:ended], references[ended:]

  monkeypatch.setattr('ray.wait', wait)
  monkeypatch.setattr('ray.get', lambda references: references)
  return left


def test_what_was_done_again_is_said_and_a_worker_of_other_versions_is_refused(pool, monkeypatch):
  call = ray_round.Call((1, 0), range(2, 4), None, 0.0)
  pool.note(call, ray_worker.Info(1, 'process 5', ray_worker.versions(), 1.0))
  assert pool.lines == ['Round 7: a worker was lost; process 5 did subrounds 3 to 4 again (try 2)']
  assert (pool.counters, pool._longest) == ({'subrounds_retried': 2}, [0.0, 1000.0])
  with pytest.raises(errors.WorkerError, match=r'process 5 has TFF 0\.1; here are .*: install'):
    pool.note(call, ray_worker.Info(0, 'process 5', 'TFF 0.1', 1.0))
  ended = types.SimpleNamespace(run=lambda: pool._longest)
  monkeypatch.setattr(ray_round, 'Round', lambda *unused: ended)
  assert [pool.run(None), pool.run(None)] == [[1000.0, 0.0], [0.0, 0.0]]


def test_a_worker_that_never_answers_is_given_up_and_said(pool, monkeypatch):
  left = _waits(pool, monkeypatch, 0, 0, 1, 0, 0, 2)
  assert pool.each(None, [5, 6, 7]) == [5, 6, 7]
  assert not left
  left = _waits(pool, monkeypatch, 1, 0, 0, 0, 0)
  with pytest.raises(errors.WorkersLost, match='no worker has finished a call for 60 s; 2 are'):
    pool.each(None, [5, 6, 7])
  assert not left
  (line,) = pool.lines
  assert line.startswith('Round 7: no worker has finished a call for 60 s; 2 are pending: is')


@pytest.mark.parametrize(
  ('longest', 'seconds', 'waits'), [(7.0, 0.0, 4), (7.0, 90.0, 5), (2.0, 9.0, 4)]
)
def test_calls_may_take_long_where_others_do_or_there_is_much_to_do(
  pool, monkeypatch, longest, seconds, waits
):
  pool._longest = [longest, 0.0]
  left = _waits(pool, monkeypatch, *(waits * [0]))
  with pytest.raises(errors.WorkersLost):
    pool.each(None, [5], seconds)
  assert not left


def test_an_error_of_rays_while_a_worker_is_waited_for_means_that_workers_are_lost(
  pool, monkeypatch
):
  def look():
    raise ray.exceptions.RpcError('the head does not answer')

  pool._look = look
  _waits(pool, monkeypatch, 1)
  assert pool.each(None, [5]) == [5]  # Nobody is waited for.
  _waits(pool, monkeypatch, 0)
  with pytest.raises(errors.WorkersLost, match='the head does not answer'):
    pool.each(None, [5])


@pytest.mark.parametrize('waits', [(0, 0, 1), (0, 0, 0, 0, 0, 1)])
def test_a_node_whose_worker_does_not_answer_is_named_while_it_is_waited_for(
  pool, monkeypatch, waits
):
  left, rooms, pool._rooms = _waits(pool, monkeypatch, *waits), pool._rooms, {}
  pool._look = lambda: setattr(pool, '_rooms', rooms)
  assert pool.on_each_node(None, 'x') == [('10.0.0.2', 'x')]
  said = ['Round 7: waiting for a worker of node 10.0.0.2: is it stopped, or busy?']
  assert pool.lines == (said if len(waits) > 3 else [])
  assert not left


def test_a_cluster_without_room_for_as_long_as_patience_has_no_worker_left(pool, monkeypatch):
  monkeypatch.setattr(ray_pool.time, 'sleep', lambda seconds: None)
  pool.settings, pool._room, pool._without_room = ray_worker.Settings(2, 0, 10**9), 0, pool.now - 45
  expected = r'Round 7: no worker is left: .* 2 CPUs.*, and 1 GB'
  for ask, *given in ((pool.each, None, ['x']), (pool.on_each_node, None, 'x'), (pool.look, [])):
    _waits(pool, monkeypatch, 0)
    with pytest.raises(errors.WorkersLost, match=expected):
      ask(*given)


def test_a_head_that_does_not_listen_is_lost_within_seconds(pool, monkeypatch):
  with socket.socket() as bound:  # It does not listen, and nobody else can at its port.
    bound.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{bound.getsockname()[1]}'
    pool._processes = {'the head of the Ray cluster': address}
    monkeypatch.setattr('ray.nodes', lambda: pytest.fail('Ray would wait for a minute'))
    monkeypatch.setattr('time.sleep', lambda seconds: setattr(pool, 'now', pool.now + seconds))
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
  pool.settings = ray_worker.Settings(2, 0.5, 10**9)
  pool._check_processes = lambda: None
  pool.ask_for_room(3)
  pool.ask_for_room(0)

  def lost():
    raise errors.WorkersLost('the head is lost')

  pool._check_processes = lost
  pool.ask_for_room(0)
  assert asked == [[{'CPU': 2, 'GPU': 0.5, 'memory': 10**9}] * 3, []]


def _is_late(pool, ago, copies=0):
  call = ray_round.Call((0, 0), range(1), None, began=pool.now - ago, copies=copies)
  return bool(pool.look([call]))


def test_a_call_is_given_again_ever_more_rarely_and_looked_at_now_and_then(pool):
  late = [[_is_late(pool, ago, copies) for copies in range(3)] for ago in (70, 130, 250)]
  assert late == [[True, False, False], [True, True, False], [True, True, True]]
  pool._looked = pool.now - 1.9
  assert not _is_late(pool, 900)
  pool.now += 0.2
  assert _is_late(pool, 900)


def test_a_stages_quickest_pace_says_what_is_worth_a_call(pool):
  pool._paces = {}
  assert pool.worthwhile('stage') == 0
  for seconds in (2.0, 0.5, 1.0):
    pool.note_pace('stage', seconds)
  assert pool.worthwhile('stage') == 2 * ray_pool._CALL_SECONDS


def test_a_node_short_of_memory_is_left_out_and_named_unless_it_is_the_last(pool):
  error = ray.exceptions.OutOfMemoryError(f'the node (ID: {_NODE}) runs low on memory')
  assert not pool.leave_out(error, 'subround 1 goes to another')
  pool._rooms['cd'], pool._nodes['cd'] = 1, '10.0.0.3'
  assert pool.leave_out(error, 'subround 1 goes to another')
  assert pool.lines == [
    'Round 7: node 10.0.0.2 is short of memory and left out; subround 1 goes to another'
  ]
  given = {}
  function = types.SimpleNamespace(options=lambda **options: given.update(options) or function)
  function.remote = None
  pool._remote[ray_worker.call] = function
  pool.remote(ray_worker.call, 'x')
  selector = {'ray.io/node-id': f'!in({_NODE})'}
  assert given == {'name': 'call: round 7: x', 'label_selector': selector}
