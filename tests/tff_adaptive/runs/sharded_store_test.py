"""Sharded client states: what is put is got, rounds that did not count leave no trace."""

import contextlib
import os
import pickle
import sqlite3
import types

import numpy as np
import pytest

from tff_adaptive.runs import sharded_store, state_file, state_store
from tff_adaptive.runs.errors import SaveError, StateError

INITIAL = (np.zeros(3, np.float32), np.int32(-1))
SERVER = {'w': np.zeros(2, np.float32)}
IDS = [f'client {i}' for i in range(40)]


def _state(value):
  return np.full(3, value, np.float32), np.int32(value)


def _open(path, store='shards', **options):
  return sharded_store.open_store(str(path), INITIAL, store, **options)


def _loaded(source, keys):
  return [int(state[1]) for state in source.load(keys)]


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
  monkeypatch.setattr(sharded_store, 'NUM_SHARDS', 4)  # Each costs a commit.
  monkeypatch.setattr(state_file.StateFile, 'seconds', 0.05)  # For a lock to be let go.
  return tmp_path / 'state.sqlite'


def test_a_client_has_one_shard_on_every_machine():
  # CRC-32 of '123456789', the published check value, is CBF43926.
  assert sharded_store.shard_of('123456789') == 0x6


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
    assert not os.listdir(tmp_path / 'client_states' / 'staged')
  store, number = _resumed(path)
  with store:
    assert number == 12
    assert _values(store) == _values(plain)
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
    store.put(IDS[:5], [_state(1)] * 5, 1)
    store.commit(1, SERVER)
    store.put(IDS[:9], [_state(5)] * 9, 2)

    def each(function, arguments, seconds):
      most = max(len(work.rows) for work in arguments)
      assert seconds == most * store.state_bytes / 5e6
      for work in arguments[:2]:  # Some have folded, one twice, before they were lost.
        assert function(work) == function(work)
      raise RuntimeError('no worker is left')

    store.each = each
    store.commit(2, SERVER)
  for which, expected in (('latest', [5] * 9 + [-1]), ('previous', [1] * 5 + [-1] * 5)):
    store, _ = _resumed(path, which)
    with store:
      assert _values(store, IDS[:10]) == expected


def test_references_travel_and_a_subround_done_twice_is_one(path):
  with _open(path) as store:
    store.commit(0, SERVER)
    store.by_reference = True
    references = store.get(IDS[:4])
    keys = [reference.key for reference in references]
    source = pickle.loads(pickle.dumps(references[0].source))  # As a worker has it.
    assert _loaded(source, keys) == [-1] * 4
    receipts = source.store(keys, [_state(i) for i in range(4)])
    # A second call, on another kind of processor: what came first counts.
    assert source.store(keys, [_state(100 + i) for i in range(4)]) == receipts
    store.put(IDS[:4], receipts, 1)
    for commit in (lambda: None, lambda: store.commit(1, SERVER)):
      commit()
      later = [reference.key for reference in store.get([IDS[2], IDS[9]])]
      assert _loaded(source, later) == [2, -1]
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
    assert _loaded(source, later) == [2, -1]


def _stage(source, sequence, ids, first):
  """Stages a number for each client; the keys that name them."""
  keys = [sharded_store.Key(client_id, sequence, -1, None) for client_id in ids]
  places = source.store(keys, [_state(first + i) for i in range(len(ids))])
  return [key._replace(place=place) for key, place in zip(keys, places)]


@pytest.mark.parametrize('has_links', [True, False])
def test_a_subround_is_one_file_from_which_any_state_is_read(path, monkeypatch, has_links):
  def link(*arguments):
    raise OSError('no links here')

  if not has_links:
    monkeypatch.setattr(os, 'link', link)
  with _open(path) as store:
    folder, keys = f'{store.folder}/staged', _stage(store.source, 7, IDS[:3], 1)
    assert os.listdir(folder) == [keys[0].place.name]
    # Of another round, of other clients or of another start of the run: a file of its own.
    other = sharded_store.StateSource(store.folder, INITIAL, 'other')
    later = _stage(store.source, 8, IDS[:3], 8)
    _stage(store.source, 7, IDS[2::-1], 5)
    _stage(other, 7, IDS[:3], 5)
    assert len(os.listdir(folder)) == 4
    assert _loaded(store.source, [keys[2], later[0], keys[1]]) == [3, 8, 2]
    # As one text, these ids are the same.
    one, two = (_stage(store.source, 9, ids, 1 + len(ids[0])) for ids in (['a', 'bc'], ['ab', 'c']))
    assert _loaded(store.source, [*one, *two]) == [2, 3, 3, 4]


def test_whoever_had_the_run_before_can_neither_fold_nor_stage_for_it(path):
  with _open(path) as old:
    old.commit(0, SERVER)
    old_source = pickle.loads(pickle.dumps(old.source))
    old_keys = old._keys(IDS[:2])
    _train(old, 1, IDS[:2])
    folds = []
    old.each = lambda function, work, seconds: folds.extend(work) or []
    old._write_clients()
  store, _ = _resumed(path)
  with store:
    assert not os.listdir(f'{store.folder}/staged')
    assert len(os.listdir(store.folder)) == 6  # All shards are there.
    with pytest.raises(StateError, match='another process has resumed this run'):
      sharded_store.fold(folds[0])
    old_source.store(old_keys, [_state(66)] * 2)  # A worker that wakes up late.
    _train(store, 1, IDS[:2])
    assert _values(store, IDS[:2]) == [0, 0]


def test_damage_of_what_is_staged_is_found(path):
  with _open(path) as store:
    keys, source = _stage(store.source, 7, ['a', 'b', 'é'], 1), store.source
    file = path.parent / 'client_states' / 'staged' / keys[0].place.name
    octets = bytearray(file.read_bytes())
    octets[24] ^= 1  # The first of the second state.
    file.write_bytes(octets)
    assert _loaded(source, keys[::2]) == [1, 3]
    with pytest.raises(StateError, match=r"the checksum of client 'b' differs.*same command again"):
      source.load(keys)
    with pytest.raises(StateError, match='checksum'):  # Another's state, in order by itself.
      source.load([keys[0]._replace(client_id='b')])
    file.unlink()
    with pytest.raises(StateError, match='No such file'):
      source.load(keys[:1])


def test_damage_of_a_shard_is_found(path):
  with _open(path) as store:
    _train(store, 1, IDS)
    store.commit(1, SERVER)
  shard = path.parent / 'client_states' / 'shard-03.sqlite'
  (victim, *_) = [c for c in IDS if sharded_store.shard_of(c) == 3]
  with sqlite3.connect(shard) as connection:
    connection.execute('UPDATE client_state SET state = zeroblob(16) WHERE id = ?', (victim,))
  store, _ = _resumed(path)
  with store, pytest.raises(StateError, match=f'{victim}.* is damaged'):
    store.get([victim])
  with sqlite3.connect(shard) as connection:
    connection.execute('DELETE FROM client_state WHERE id = ?', (victim,))
  for spoil, message in (
    (lambda: None, 'states are missing'),
    (lambda: shard.write_bytes(b'x' * 1000), r'shard-03\.sqlite cannot be opened: .*not a data'),
    (shard.unlink, r'shard-03\.sqlite cannot be opened: unable'),
  ):
    spoil()
    with _open(path) as store, pytest.raises(StateError, match=message):
      store.restore(SERVER)


def test_a_shard_that_a_stopped_process_holds_is_an_error_that_says_what_helps(path, monkeypatch):
  monkeypatch.setattr(sharded_store.Shard, 'seconds', 0.05)
  with _open(path) as store:
    _train(store, 1, IDS[:1])
    number = sharded_store.shard_of(IDS[0])
    # As one that is stopped in the midst of a fold.
    with contextlib.closing(sharded_store.Shard(store.folder, number, is_writer=True)):
      message = rf'shard-0{number}\.sqlite cannot be .*locked .* Kill it \(kill -9\), and give'
      with pytest.raises(StateError, match=message):
        store.commit(1, SERVER)
    store.commit(1, SERVER)  # It has been killed.


def test_a_folder_that_cannot_be_written_is_named_and_the_state_file_let_go(path):
  folder = path.parent / 'client_states'
  folder.write_text('a file')
  with pytest.raises(SaveError, match='client_states cannot be written: '):
    _open(path)
  folder.unlink()
  with _open(path) as store:  # The state file is not locked by the one that failed.
    store.get(IDS[:1])
    os.rmdir(f'{folder}/staged')
    with pytest.raises(SaveError, match=r'client_states/staged/0+-\S+ cannot be written: '):
      store.put(IDS[:1], [_state(1)], 1)


def _workers(meanwhile=lambda: None, is_blind=False):
  """On each node a function is called as it would be there; `meanwhile` happens before."""

  def on_each_node(function, argument):
    meanwhile()
    return [('10.0.0.9', '' if is_blind else function(argument))]

  each = lambda function, arguments, seconds: [*map(function, arguments)]  # noqa: E731
  return types.SimpleNamespace(accepts=bool, each=each, on_each_node=on_each_node)


def _saved(store):
  """The store after a round of training here, saved."""
  store.by_reference = False
  store.put(IDS[:2], [_state(5)] * 2, 1)
  store.commit(1, SERVER)


def test_a_run_has_the_store_that_it_began_with(path, tmp_path_factory):
  def lose():
    raise RuntimeError('no worker is left')

  assert sharded_store.kind(str(path), 'shards') == 'shards'
  for found in ('memory', 'shards'):  # A start that finds no node decides nothing.
    with pytest.raises(RuntimeError, match='no worker is left'):
      _open(path, workers=_workers(lose))
    assert sharded_store.kind(str(path), 'memory') == found
    if found == 'memory':
      with _open(path) as store:
        _saved(store)
  store, _ = _resumed(path)
  with store:
    assert _values(store, IDS[:1]) == [5]
  plain = str(tmp_path_factory.mktemp('other') / 'state.sqlite')
  with _open(plain, 'memory'):
    pass
  assert sharded_store.kind(plain, 'memory') == 'memory'
  assert sharded_store.kind(plain, 'shards') == 'shards'  # Nothing has been saved.
  with _open(plain, 'memory') as store:
    _saved(store)
  assert sharded_store.kind(plain, 'shards') == 'memory'
  store, _ = _resumed(plain)
  with store:
    assert not isinstance(store, sharded_store.ShardedStateStore)
    assert _values(store, IDS[:1]) == [5]


@pytest.mark.parametrize('is_blind', [False, True])
def test_of_two_first_starts_one_is_refused_and_the_others_shards_are_let_be(path, is_blind):
  refused = []

  def start():
    with pytest.raises(StateError, match='another process is using it') as error:
      _open(path, workers=_workers())
    refused.append(error)

  with _open(path, workers=_workers(start, is_blind)) as store:
    assert len(refused) == 1
    assert store.by_reference != is_blind
    assert [note.rpartition(' is not there on ')[2] for note in store.notes] == (
      ['10.0.0.9: client states go through this process.'] if is_blind else []
    )
    # The lock is held all the time: a lost marker is made again only by who has the run.
    os.unlink(os.path.join(store.folder, sharded_store.MARKER))
    start()
    assert not sharded_store.read_marker(store.folder)
    _saved(store)
  store, _ = _resumed(path, workers=_workers())
  with store:
    assert store.by_reference
    store.by_reference = False
    assert _values(store, IDS[:1]) == [5]


def test_without_client_states_there_are_no_shards(path):
  with sharded_store.open_store(str(path), (), 'shards', workers=_workers()) as store:
    store.commit(1, SERVER)
  assert os.listdir(path.parent) == ['state.sqlite']
