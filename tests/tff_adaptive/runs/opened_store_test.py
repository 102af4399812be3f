"""Which store a run gets, and that a start which is refused touches nothing of another's."""

import os

import numpy as np
import pytest

from tff_adaptive.runs import opened_store, sharded_store, state_shards
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import StateFile

INITIAL = (np.zeros(3, np.float32), np.int32(-1))
SERVER = {'w': np.zeros(2, np.float32)}
IDS = ['a', 'b']


@pytest.fixture
def path(tmp_path, monkeypatch):
  monkeypatch.setattr(state_shards, 'NUM_SHARDS', 2)  # Each costs a commit.
  monkeypatch.setattr(StateFile, 'seconds', 0.05)  # For a lock to be let go.
  return str(tmp_path / 'state.sqlite')


def _open(path, workers=None, store='shards', notes=None):
  return opened_store.open_store(path, INITIAL, store, workers=workers, notes=notes)


def _kind(path, store='shards'):
  return opened_store.kind(path, store)


def _train(store):
  store.put(IDS, [(np.ones(3, np.float32), np.int32(5))] * 2, 1)
  store.commit(1, SERVER)


def _resumed(path, **options):
  store = _open(path, **options)
  store.forget_later(store.restore(SERVER).round_number)
  return store


class _Workers:
  """On each node a function is called as it would be there; `meanwhile` happens before."""

  def __init__(self, meanwhile=lambda: None, is_blind=False):
    self._meanwhile, self._is_blind = meanwhile, is_blind

  def accepts(self, source):
    return True

  def each(self, function, arguments, seconds):
    return [function(argument) for argument in arguments]

  def on_each_node(self, function, argument):
    self._meanwhile()
    return [('10.0.0.9', '' if self._is_blind else function(argument))]


def test_a_run_has_the_store_that_it_began_with(path, tmp_path_factory):
  assert _kind(path) == 'shards'
  with _open(path) as store:
    _train(store)
  assert _kind(path, 'memory') == 'shards'
  plain = str(tmp_path_factory.mktemp('other') / 'state.sqlite')
  with _open(plain, store='memory') as store:
    assert _kind(plain, 'memory') == 'memory'
  assert _kind(plain) == 'shards'  # Nothing has been saved.
  with _open(plain, store='memory') as store:
    _train(store)
  assert _kind(plain) == 'memory'
  assert _kind(plain, 'disk') == 'disk'
  with _resumed(plain) as store:
    assert not isinstance(store, sharded_store.ShardedStateStore)
    assert int(store.get(IDS)[0][1]) == 5


def _second_starts(path, refused):
  """Starts the same once more; where that is not refused it trains, saves and ends."""

  def start():
    try:
      with _open(path, _Workers()) as store:
        store.by_reference = False
        _train(store)
    except StateError as error:
      refused.append(str(error))

  return start


@pytest.mark.parametrize('is_blind', [False, True])
def test_of_two_first_starts_one_is_refused_and_the_others_shards_are_let_be(path, is_blind):
  refused, notes = [], []
  folder = os.path.join(os.path.dirname(path), 'client_states')
  workers = _Workers(_second_starts(path, refused), is_blind)
  with _open(path, workers, notes=notes) as store:
    assert ['another process is using it' in error for error in refused] == [True]
    assert isinstance(store, sharded_store.ShardedStateStore) != is_blind
    assert os.path.exists(folder) != is_blind
    assert bool(notes) == is_blind
    _second_starts(path, refused)()  # The lock is held all the time.
    assert len(refused) == 2
    store.by_reference = False
    _train(store)
  with _resumed(path) as store:
    assert int(store.get(IDS)[0][1]) == 5


def test_a_start_that_finds_no_node_leaves_the_shards_of_another(path):
  def lose():
    raise RuntimeError('no worker is left')

  with pytest.raises(RuntimeError, match='no worker is left'):
    _open(path, _Workers(lose))
  assert _kind(path, 'memory') == 'memory'  # That start decides nothing.
  with _open(path) as store:
    _train(store)
  with pytest.raises(RuntimeError, match='no worker is left'):
    _open(path, _Workers(lose))
  with _resumed(path) as store:
    assert int(store.get(IDS)[0][1]) == 5


def test_a_lost_marker_is_made_again_only_by_who_has_the_run(path):
  with _open(path) as store:
    _train(store)
    folder = os.path.join(os.path.dirname(path), 'client_states')
    os.unlink(os.path.join(folder, state_shards.MARKER))
    with pytest.raises(StateError, match='another process is using it'):
      _open(path)
    assert not state_shards.read_marker(folder)
  with _resumed(path, workers=_Workers()) as store:
    assert state_shards.read_marker(folder)
    store.by_reference = False
    assert int(store.get(IDS)[0][1]) == 5


def test_without_client_states_there_are_no_shards(path):
  with opened_store.open_store(path, (), 'shards', workers=_Workers()) as store:
    store.commit(1, SERVER)
  assert os.listdir(os.path.dirname(path)) == ['state.sqlite']
