"""What a pool and its context ask for and say, without a cluster; with one: ray_context_test."""

import functools
import math
import socket
import types

import pytest
import tensorflow as tf

from tff_adaptive import engine
from tff_adaptive.devices import threads
from tff_adaptive.engine.cluster import errors, joining, ray_pool, ray_worker

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
  pool = types.SimpleNamespace(ask_for_room=asked.append)
  leave = functools.partial(asked.append, 'left')
  for place, name, result in ((joining, 'join', leave), (ray_pool, 'RayPool', pool)):
    monkeypatch.setattr(place, name, lambda *given, result=result: asked.append(given) or result)
  monkeypatch.setattr(threads, 'num_processors', lambda: 8)
  options = {'cpus_per_worker': 2, 'memory_per_worker': 1.5, 'patience': 9.0}
  elsewhere = engine.RayContext('auto', workers=6, **options)
  elsewhere.close()
  here = engine.RayContext()
  _ = engine.RayContext(cpus_per_worker=3)
  assert (elsewhere._subrounds, here._subrounds) == (6, 4)
  wanted = [('auto', 12, False), (6, (2, 0, 15 * 10**8), 9.0), 6, 0, 'left']
  wanted += [('local', 8, False), (None, (1, 0, 0), 60.0)]
  assert asked == [*wanted, ('local', 6, False), (None, (3, 0, 0), 60.0)]


@pytest.fixture
def pool(monkeypatch):
  """A pool that has joined nothing; its lines are in `pool.lines`, its time is `pool.now`."""
  pool_of_test = object.__new__(ray_pool.RayPool)
  pool_of_test.occasion = 'round 7'
  pool_of_test.lines = []
  pool_of_test.counters = {'subrounds_retried': 0}
  pool_of_test._left_out = set()
  pool_of_test._only_on = None
  pool_of_test.report = pool_of_test.lines.append
  pool_of_test._patience = 60.0
  pool_of_test._rooms = {_NODE: 1}
  pool_of_test._nodes = {_NODE: '10.0.0.2'}
  pool_of_test._room = 1
  pool_of_test._look = lambda: None
  pool_of_test._looked = 0.0
  pool_of_test.now = 1000.0
  pool_of_test._heard = pool_of_test.now
  pool_of_test._next_notice = ray_pool._SILENCE_SECONDS
  pool_of_test.on_nodes = lambda references: f' on {"".join(references)}'
  pool_of_test._remote = {}
  monkeypatch.setattr(ray_pool.time, 'monotonic', lambda: pool_of_test.now)
  return pool_of_test


def _waits(pool, monkeypatch, seconds, *answers):
  """In place of `ray.wait`: how many calls have ended, after so many seconds each time."""
  left = list(answers)

  def wait(references, num_returns, timeout, fetch_local=True):
    pool.now += seconds
    ended = left.pop(0)
    return references[:ended], references[ended:]

  monkeypatch.setattr('ray.wait', wait)
  monkeypatch.setattr('ray.get', lambda references: references)
  return left


def test_what_was_done_again_is_said_and_a_worker_of_other_versions_is_refused(pool):
  pool.note(ray_worker.Info(0, 'process 4', ray_worker.versions(), 1.0), 'subround 1', 1)
  assert (pool.lines, pool.counters) == ([], {'subrounds_retried': 0})
  pool.note(ray_worker.Info(1, 'process 5', ray_worker.versions(), 1.0), 'subrounds 3 to 4', 2)
  assert pool.lines == ['Round 7: a worker was lost; process 5 did subrounds 3 to 4 again (try 2)']
  assert pool.counters == {'subrounds_retried': 2}
  with pytest.raises(errors.WorkerError, match=r'process 5 has TFF 0\.1; here are .*: install'):
    pool.note(ray_worker.Info(0, 'process 5', 'TFF 0.1', 1.0), 'subround 1', 1)


def test_a_long_silence_is_said_ever_more_rarely_and_ends_when_a_call_ends(pool, monkeypatch):
  # After 300, 600, ... seconds. The two silences last 1,500 and 600 seconds.
  left = _waits(pool, monkeypatch, 300, 0, 0, 0, 0, 0, 1, 0, 0, 2)
  assert pool.get(['a', 'b', 'c']) == ['a', 'b', 'c']
  assert not left
  help_ = ': if a worker is stopped or hangs, kill it, and Ray gives its work to another'
  assert pool.lines == [
    f'Round 7: no worker has finished a call for 600 s, 3 are pending on abc{help_}',
    f'Round 7: no worker has finished a call for 1200 s, 3 are pending on abc{help_}',
    f'Round 7: no worker has finished a call for 600 s, 2 are pending on bc{help_}',
  ]


def test_a_silence_while_a_round_trains_is_said_too_and_a_new_stage_begins_anew(pool, monkeypatch):
  pool.counters['seconds_waiting'] = 0
  _waits(pool, monkeypatch, 599, 0, 0, 1)
  assert pool.wait(['a']) == []
  assert not pool.lines
  pool.begin()
  assert pool.wait(['a']) == []
  assert not pool.lines  # The silence between two stages is not the workers'.
  assert pool.wait(['a']) == ['a']
  assert pool.counters['seconds_waiting'] == 3 * 599


def test_an_error_of_rays_while_a_worker_is_waited_for_means_that_workers_are_lost(
  pool, monkeypatch
):
  def look():
    raise ray.exceptions.RpcError('the head does not answer')

  pool._look = look
  _waits(pool, monkeypatch, 20, 1)
  assert pool.get([5]) == [5]  # Nobody is waited for.
  _waits(pool, monkeypatch, 20, 0)
  with pytest.raises(errors.WorkersLost, match='the head does not answer'), pool.losses():
    pool.get([5])


def test_a_cluster_without_room_for_as_long_as_patience_has_no_worker_left(pool, monkeypatch):
  pool.settings = ray_worker.Settings(2, 0, 10**9)
  pool._room = 0
  pool._without_room = pool.now - 45
  expected = r'Round 7: no worker is left: .* 2 CPUs.*, and 1 GB'
  for ask in (lambda: pool.get(['x']), pool.look):
    _waits(pool, monkeypatch, 20, 0)
    with pytest.raises(errors.WorkersLost, match=expected):
      ask()


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


def test_the_cluster_is_looked_at_now_and_then(pool):
  looks = []
  pool._look = lambda: looks.append(pool.now)
  for now, looked in ((1000.0, 998.1), (1000.2, 998.1)):
    pool.now = now
    pool._looked = looked
    pool.look()
  assert looks == [1000.2]


def test_a_stages_quickest_pace_says_what_is_worth_a_call(pool):
  pool._paces = {}
  assert pool.worthwhile('stage') == 0
  for seconds in (2.0, 0.5, 1.0):
    pool.note_pace('stage', seconds)
  assert pool.worthwhile('stage') == 2 * ray_pool._CALL_SECONDS


def test_a_node_short_of_memory_is_left_out_and_named_unless_it_is_the_last(pool):
  error = ray.exceptions.OutOfMemoryError(f'the node (ID: {_NODE}) runs low on memory')
  assert not pool.leave_out(error, 'subround 1 goes to another')
  pool._rooms['cd'] = 1
  pool._nodes['cd'] = '10.0.0.3'
  assert pool.leave_out(error, 'subround 1 goes to another')
  assert pool.lines == [
    'Round 7: node 10.0.0.2 is short of memory and left out; subround 1 goes to another'
  ]
  given = {}
  function = types.SimpleNamespace(options=lambda **options: given.update(options) or function)
  function.remote = None
  pool._remote[ray_worker.merge] = function
  pool.remote(ray_worker.merge, 'x')
  selector = {'ray.io/node-id': f'!in({_NODE})'}
  assert given == {'name': 'merge: round 7: x', 'label_selector': selector}
