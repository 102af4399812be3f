"""The state file: what is put is got, a checkpoint is all or nothing."""

import collections
from unittest import mock

import numpy as np
import pytest

from tff_adaptive.runs import state_store
from tff_adaptive.runs.errors import StateError

INITIAL = collections.OrderedDict(
  h=(np.zeros([2, 3], np.float32), np.zeros(1, np.float64)), t=np.int32(-1)
)
SERVER = {'w': [np.zeros(4, np.float32)], 'round': 0, 'scale': np.float64(1.0), 'empty': ()}


def _state(value):
  return collections.OrderedDict(
    h=(np.full([2, 3], value, np.float32), np.full(1, value / 3, np.float64)), t=np.int32(value)
  )


def _equal(a, b):
  np.testing.assert_array_equal(a['h'][0], b['h'][0])
  np.testing.assert_array_equal(a['h'][1], b['h'][1])
  assert a['t'] == b['t']
  assert a['h'][0].dtype == np.float32
  assert a['h'][1].dtype == np.float64


def test_what_is_put_is_got_after_a_commit_and_a_restart(tmp_path):
  path = str(tmp_path / 's.sqlite')
  with state_store.ClientStateStore(path, INITIAL) as store:
    assert store.restore(SERVER) is None
    for i in range(30):
      store.put([str(i), f'other {i}'], [_state(i), _state(-i)])
    store.put(['7'], [_state(77)])
    _equal(store.get(['7'])[0], _state(77))
    server = {**SERVER, 'w': [np.arange(4, dtype=np.float32)], 'round': 12}
    store.commit(5, server, {'run_id': 'a'})
    store.put(['8', 'new'], [_state(1000), _state(1000)])  # Not committed.
  with state_store.ClientStateStore(path, INITIAL) as store:
    checkpoint = store.restore(SERVER)
    assert checkpoint.round_number == 5
    assert checkpoint.metadata == {'run_id': 'a'}
    np.testing.assert_array_equal(checkpoint.server_state['w'][0], np.arange(4))
    assert type(checkpoint.server_state['round']) is int
    assert type(checkpoint.server_state['scale']) is np.float64
    states = store.get(['3', 'other 3', '7', '8', 'new', 'never'])
    for state, expected in zip(states, [3, -3, 77, 8]):
      _equal(state, _state(expected))
    for state in states[4:]:
      _equal(state, INITIAL)


def test_the_store_keeps_copies_hands_out_read_only_arrays_and_refuses_other_states():
  store = state_store.ClientStateStore(None, INITIAL)
  mine = _state(1)
  store.put(['a'], [mine])
  mine['h'][0][:] = 5
  (got,) = store.get(['a'])
  _equal(got, _state(1))
  with pytest.raises(ValueError, match='read-only'):
    got['h'][0][0, 0] = 2
  wrong = _state(2)
  wrong['t'] = np.int64(2)
  with pytest.raises(StateError, match='int64'):
    store.put(['a', 'b'], [_state(2), wrong])
  _equal(store.get(['a'])[0], _state(1))
  with pytest.raises(ValueError, match='2 client ids but 1 states'):
    store.put(['a', 'b'], [_state(2)])
  with pytest.raises(ValueError, match='twice'):
    store.put(['a', 'a'], [_state(2), _state(2)])


def test_rounds_go_forward_from_0_and_two_checkpoints_are_kept(tmp_path):
  with state_store.ClientStateStore(str(tmp_path / 's'), INITIAL) as store:
    for last in (-1, 0, 1, 2):
      for wrong in (last - 1, last):
        with pytest.raises(ValueError, match=f'round_number is {wrong}; it must be more than'):
          store.commit(wrong, SERVER)
        with pytest.raises(ValueError, match=f'more than {last}'):
          store.put(['a'], [_state(1)], wrong)
      store.commit(last + 1, SERVER)
    assert store._file.rounds == [2, 3]


def test_what_is_collected_in_a_server_state_may_grow(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  empty = {'w': np.zeros(2, np.float32), 'seen': np.zeros([0, 3], np.float32)}
  grown = {**empty, 'seen': np.ones([4, 3], np.float32)}
  with state_store.ClientStateStore(path, INITIAL) as store:
    with pytest.raises(StateError, match='only numbers'):  # Before the first round, not after it.
      store.restore({'name': np.array(['text'], object)})
    store.commit(1, grown)
    np.testing.assert_array_equal(store.restore(empty).server_state['seen'], grown['seen'])
    for other in ({**empty, 'w': np.zeros(3, np.float32)}, {**empty, 'seen': np.zeros([0, 2])}):
      with pytest.raises(StateError, match='another algorithm or model'):
        store.restore(other)


def test_states_are_read_once_and_written_once_at_a_commit(tmp_path):
  path = str(tmp_path / 's.sqlite')
  with state_store.ClientStateStore(path, INITIAL) as store:
    file = store._file
    with mock.patch.object(file, 'put_client', wraps=file.put_client) as write:
      store.put(['a', 'b'], [_state(1), _state(2)])
      assert not write.called
      store.commit(1, [])
      store.commit(2, [])
    assert [call.args[:2] for call in write.call_args_list] == [('a', 0), ('b', 0)]
  with state_store.ClientStateStore(path, INITIAL) as store:
    file = store._file
    with mock.patch.object(file, 'read_client', wraps=file.read_client) as read:
      for _ in range(2):
        _equal(store.get(['a'])[0], _state(1))
    assert read.call_count == 1


def test_states_that_the_file_has_take_no_more_memory_than_the_cache(tmp_path):
  path = str(tmp_path / 's.sqlite')
  ids = [str(i) for i in range(10)]
  with state_store.ClientStateStore(path, INITIAL) as store:
    size = store.state_bytes
  with state_store.ClientStateStore(path, INITIAL, cache_bytes=3 * size) as store:
    store.put(ids, [_state(i) for i in range(10)], 1)
    store.put(ids[:1], [_state(-1)], 2)  # States that are not saved stay, however many.
    assert len(store._unsaved) == 10
    store.commit(2, SERVER)
    store.put(ids[8:9], [_state(80)], 3)  # Its saved state, which is in the cache, is outdated.
    expected = [-1, *range(1, 8), 80, 9]
    for _ in range(2):
      for state, value in zip(store.get(ids), expected):
        _equal(state, _state(value))
      assert sum(map(len, store._saved.values())) <= 3 * size
    assert list(store._unsaved) == ['8']
  # A state that is larger than the cache is read whenever it is needed.
  with state_store.ClientStateStore(path, INITIAL, cache_bytes=size - 1) as store:
    _equal(store.get(['9'])[0], _state(9))
    assert not store._saved
