"""Sharded client states: what is put is got, rounds that did not count leave no trace."""

import os
import pickle
import sqlite3

import numpy as np
import pytest

from tff_adaptive.runs import sharded_store, state_file, state_shards, state_store
from tff_adaptive.runs.errors import SaveError, StateError

INITIAL = (np.zeros(3, np.float32), np.int32(-1))
SERVER = {'w': np.zeros(2, np.float32)}
IDS = [f'client {i}' for i in range(40)]


def _state(value):
  return np.full(3, value, np.float32), np.int32(value)


def _open(path, **options):
  return sharded_store.open_store(str(path), INITIAL, options.pop('store', 'shards'), **options)


def _values(store, ids=IDS):
  return [int(state[1]) for state in store.get(ids)]


def _train(store, number, ids):
  """A round that adds its number to each client's state."""
  store.put(ids, [_state(v + number) for v in _values(store, ids)], number)


def _resumed(path, which='latest', **options):
  store = _open(path, **options)
  checkpoint = store.restore(SERVER, which)
  store.forget_later(checkpoint.round_number)
  return store, checkpoint.round_number


@pytest.fixture
def path(tmp_path, monkeypatch):
  monkeypatch.setattr(state_shards, 'NUM_SHARDS', 4)  # Each costs a commit.
  monkeypatch.setattr(state_file.StateFile, 'seconds', 0.05)  # For a lock to be let go.
  return tmp_path / 'state.sqlite'


def test_states_are_those_of_the_plain_store_over_commits_and_restarts(path, tmp_path):
  rng = np.random.default_rng(0)
  with _open(path) as store:
    plain = state_store.ClientStateStore(str(tmp_path / 'plain'), INITIAL)
    for number in range(1, 13):
      ids = [IDS[i] for i in rng.choice(40, 9, replace=False)]
      for each in (store, plain):
        _train(each, number, ids)
        if number in (3, 4, 9, 12):
          each.commit(number, SERVER, {'run_id': 'a'})
      assert _values(store) == _values(plain)
  store, number = _resumed(path)
  with store:
    assert number == 12
    assert _values(store) == _values(plain)
    assert not os.listdir(tmp_path / 'client_states' / 'staged')
  # What the two checkpoints count is the same: clients, and the sum of the states' checksums.
  plain.close()
  counted = [
    sqlite3.connect(file).execute('SELECT round, clients, digest FROM checkpoint').fetchall()
    for file in (path, tmp_path / 'plain')
  ]
  assert counted[0] == counted[1]


def test_a_fold_whose_checkpoint_was_not_made_counts_for_nothing(path, monkeypatch):
  with _open(path) as store:
    _train(store, 1, IDS)
    store.commit(1, SERVER)
    _train(store, 2, IDS)

    def fail(*arguments):
      raise SaveError('the disk is full')

    monkeypatch.setattr(store._file, 'save', fail)
    with pytest.raises(SaveError):
      store.commit(2, SERVER)
  store, number = _resumed(path)
  with store:
    assert (number, _values(store)) == (1, [0] * 40)
    _train(store, 2, IDS[:5])
    store.commit(2, SERVER)
    assert _values(store, IDS[4:6]) == [2, 0]
  _resumed(path)[0].close()


def test_a_checkpoint_is_made_here_when_the_workers_are_lost(path):
  with _open(path) as store:
    store.put(IDS[:9], [_state(5)] * 9, 1)

    def each(function, arguments, seconds):
      most = max(len(work.rows) for work in arguments)
      assert seconds == most * store.state_bytes / 5e6
      function(arguments[0])  # One has folded before they were lost.
      raise RuntimeError('no worker is left')

    store.each = each
    store.commit(1, SERVER)
  store, _ = _resumed(path)
  with store:
    assert _values(store, IDS[:10]) == [5] * 9 + [-1]


def test_the_previous_checkpoint_has_its_own_states(path):
  with _open(path) as store:
    for number in range(1, 6):
      _train(store, number, IDS[number : number + 3])
      store.commit(number, SERVER)
    expected = _values(store)
    assert expected[5:8] == [3 + 4 + 5 - 1, 4 + 5 - 1, 5 - 1]
  store, number = _resumed(path, 'previous')
  with store:
    assert number == 4
    assert _values(store)[5:8] == [3 + 4 - 1, 4 - 1, -1]
    _train(store, 5, IDS[5:8])
    store.commit(5, SERVER)
    assert _values(store) == expected


def test_references_travel_and_a_subround_done_twice_is_one(path):
  with _open(path) as store:
    store.commit(0, SERVER)
    store.by_reference = True
    references = store.get(IDS[:4])
    keys = [reference.key for reference in references]
    source = pickle.loads(pickle.dumps(references[0].source))  # As a worker has it.
    assert [int(s[1]) for s in source.load(keys)] == [-1] * 4
    receipts = source.store(keys, [_state(i) for i in range(4)])
    # A second call, on another kind of processor: what came first counts.
    again = source.store(keys, [_state(100 + i) for i in range(4)])
    assert again == receipts
    store.put(IDS[:4], receipts, 1)
    later = [reference.key for reference in store.get([IDS[2], IDS[9]])]
    assert [int(s[1]) for s in source.load(later)] == [2, -1]
    store.commit(1, SERVER)
    later = [reference.key for reference in store.get([IDS[2], IDS[9]])]
    assert [int(s[1]) for s in source.load(later)] == [2, -1]
    (file, *_) = source._shards.values()
    source.close()
    with pytest.raises(StateError, match='closed'):
      file.rows('SELECT 1')
    assert len(pickle.dumps(later)) < 300
    store.by_reference = False
    _train(store, 2, IDS[:4])
    store.commit(2, SERVER)
    assert _values(store, [IDS[2], IDS[9]]) == [4, -1]
    # What a key names does not change while its checkpoint is kept.
    assert [int(s[1]) for s in source.load(later)] == [2, -1]


def test_whoever_had_the_run_before_can_neither_fold_nor_stage_for_it(path):
  with _open(path) as old:
    old.commit(0, SERVER)
    old_source = pickle.loads(pickle.dumps(old.source))
    old_keys = old._keys(IDS[:2])
    _train(old, 1, IDS[:2])
    folds = []
    old.each = lambda function, work, seconds: folds.extend(work) or []
    old._write_clients(old._file)
  store, _ = _resumed(path)
  with store:
    with pytest.raises(StateError, match='another process has gone on with this run'):
      state_shards.fold(folds[0])
    old_source.store(old_keys, [_state(66)] * 2)  # A worker that wakes up late.
    _train(store, 1, IDS[:2])
    assert _values(store, IDS[:2]) == [0, 0]


def test_damage_is_found(path):
  with _open(path) as store:
    _train(store, 1, IDS)
    store.commit(1, SERVER)
    _train(store, 2, IDS[:2])
    staged = path.parent / 'client_states' / 'staged'
    (file,) = staged.iterdir()
    file.write_bytes(b'x' * file.stat().st_size)
    with pytest.raises(StateError, match=r'the checksum of client .* differs'):
      store.get(IDS[:1])
  shard = path.parent / 'client_states' / 'shard-03.sqlite'
  (victim, *_) = [c for c in IDS if state_shards.shard_of(c) == 3]
  with sqlite3.connect(shard) as connection:
    connection.execute('UPDATE client_state SET state = zeroblob(16) WHERE id = ?', (victim,))
  store, _ = _resumed(path)
  with store, pytest.raises(StateError, match=f'{victim}.* is damaged'):
    store.get([victim])
  with sqlite3.connect(shard) as connection:
    connection.execute('DELETE FROM client_state WHERE id = ?', (victim,))
  with _open(path) as store, pytest.raises(StateError, match='states are missing'):
    store.restore(SERVER)


def test_what_cannot_be_opened_is_let_go(path):
  folder = path.parent / 'client_states'
  folder.write_text('a file')
  with pytest.raises(SaveError, match='client_states cannot be written: ') as error:
    _open(path)
  folder.unlink()
  _open(path).close()  # The state file is not locked by the one that failed.
  assert error.value


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


def _saved(store):
  """The store after a round of training here, saved."""
  store.by_reference = False
  store.put(IDS[:2], [_state(5)] * 2, 1)
  store.commit(1, SERVER)


def test_a_run_has_the_store_that_it_began_with(path, tmp_path_factory):
  assert sharded_store.kind(str(path), 'shards') == 'shards'
  with _open(path) as store:
    _saved(store)
  assert sharded_store.kind(str(path), 'memory') == 'shards'
  plain = str(tmp_path_factory.mktemp('other') / 'state.sqlite')
  with _open(plain, store='memory'):
    pass
  assert sharded_store.kind(plain, 'memory') == 'memory'
  assert sharded_store.kind(plain, 'shards') == 'shards'  # Nothing has been saved.
  with _open(plain, store='memory') as store:
    _saved(store)
  assert sharded_store.kind(plain, 'shards') == 'memory'
  assert sharded_store.kind(plain, 'disk') == 'disk'
  store, _ = _resumed(plain)
  with store:
    assert not isinstance(store, sharded_store.ShardedStateStore)
    assert _values(store, IDS[:1]) == [5]


@pytest.mark.parametrize('is_blind', [False, True])
def test_of_two_first_starts_one_is_refused_and_the_others_shards_are_let_be(path, is_blind):
  refused, notes = [], []

  def start():
    with pytest.raises(StateError, match='another process is using it') as error:
      _open(path, workers=_Workers())
    refused.append(error)

  with _open(path, workers=_Workers(start, is_blind), notes=notes) as store:
    assert len(refused) == 1
    assert store.by_reference != is_blind
    assert [note.rpartition(' is not there on ')[2] for note in notes] == (
      ['10.0.0.9: client states go through this process.'] if is_blind else []
    )
    start()  # The lock is held all the time.
    _saved(store)
  store, _ = _resumed(path)
  with store:
    assert _values(store, IDS[:1]) == [5]


def test_a_start_that_finds_no_node_leaves_the_shards_of_another(path):
  def lose():
    raise RuntimeError('no worker is left')

  with pytest.raises(RuntimeError, match='no worker is left'):
    _open(path, workers=_Workers(lose))
  assert sharded_store.kind(str(path), 'memory') == 'memory'  # That start decides nothing.
  with _open(path) as store:
    _saved(store)
  with pytest.raises(RuntimeError, match='no worker is left'):
    _open(path, workers=_Workers(lose))
  store, _ = _resumed(path)
  with store:
    assert _values(store, IDS[:1]) == [5]


def test_a_lost_marker_is_made_again_only_by_who_has_the_run(path):
  folder = str(path.parent / state_shards.FOLDER)
  with _open(path) as store:
    _saved(store)
    os.unlink(os.path.join(folder, state_shards.MARKER))
    with pytest.raises(StateError, match='another process is using it'):
      _open(path)
    assert not state_shards.read_marker(folder)
  store, _ = _resumed(path, workers=_Workers())
  with store:
    assert store.by_reference
    assert state_shards.read_marker(folder)


def test_without_client_states_there_are_no_shards(path):
  with sharded_store.open_store(str(path), (), 'shards', workers=_Workers()) as store:
    store.commit(1, SERVER)
  assert os.listdir(path.parent) == ['state.sqlite']
