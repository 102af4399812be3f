"""The state file: checksums, the previous checkpoint, files of others."""

import os
import random
import sqlite3

import numpy as np
import pytest

from tff_adaptive.runs import state_file, state_store
from tff_adaptive.runs.errors import SaveError, StateError

INITIAL = (np.zeros(3, np.float32),)
SERVER = (np.zeros(4, np.float64),)


def _client(value):
  return (np.full(3, value, np.float32),)


def _server(value):
  return (np.full(4, value, np.float64),)


def _open(path, **options):
  return state_store.ClientStateStore(str(path), INITIAL, **options)


def _fill(path, rounds=9, every=3, keep=2, cache_bytes=None):
  """Rounds of three clients of nine; returns, for each checkpoint, what each client had."""
  rng = random.Random(0)
  present, history = {}, {0: {}}
  with _open(path, keep_checkpoints=keep, cache_bytes=cache_bytes) as store:
    store.commit(0, _server(0))
    for t in range(1, rounds + 1):
      ids = rng.sample('abcdefghi', 3)
      store.get(ids)
      store.put(ids, [_client(t)] * 3, t)
      present.update(dict.fromkeys(ids, t))
      if t % every == 0:
        store.commit(t, _server(t), {'t': t})
        history[t] = dict(present)
  return history


def _found(store):
  ids = 'abcdefghi'
  return {i: int(s[0][0]) for i, s in zip(ids, store.get(list(ids))) if s[0][0]}


@pytest.mark.parametrize('cache_bytes', [None, 0, 700])
@pytest.mark.parametrize('keep', [1, 2, 3, 5])
def test_each_checkpoint_that_is_kept_has_its_own_client_states(tmp_path, keep, cache_bytes):
  history = _fill(tmp_path / 's', 30, keep=keep, cache_bytes=cache_bytes)
  for back in range(1, keep + 2):
    with _open(tmp_path / 's', keep_checkpoints=keep) as store:
      rounds = sorted(history)[-keep:]
      assert store._file.rounds == rounds[: len(rounds) - back + 1]
      checkpoint = store.restore(SERVER)
      if back > keep:
        assert checkpoint is None
        return
      t = rounds[-back]
      assert checkpoint.round_number == t
      np.testing.assert_array_equal(checkpoint.server_state[0], np.full(4, t))
      assert _found(store) == history[t]
      # The versions that no checkpoint counts are gone, but for those of clients not seen since.
      versions = store._file.rows('SELECT id, COUNT(*) FROM client_state GROUP BY id')
      assert max(count for _, count in versions) <= keep
    if back == keep:
      return
    with _open(tmp_path / 's', keep_checkpoints=keep) as store:
      previous = store.restore(SERVER, 'previous')
      assert previous.round_number == rounds[-back - 1]
      store.forget_later(previous.round_number)


def test_going_on_from_the_previous_checkpoint_changes_nothing_before_it_is_decided(tmp_path):
  history = _fill(tmp_path / 's')
  with _open(tmp_path / 's') as store:
    assert store.restore(SERVER, 'previous').round_number == 6
  with _open(tmp_path / 's') as store:
    assert store.restore(SERVER).round_number == 9
    assert _found(store) == history[9]


def test_there_may_be_no_previous_checkpoint(tmp_path):
  _fill(tmp_path / 's', keep=1)
  with (
    _open(tmp_path / 's') as store,
    pytest.raises(StateError, match=r'one checkpoint only, of round 9: there is no'),
  ):
    store.restore(SERVER, 'previous')


def test_rounds_go_forward(tmp_path):
  with _open(tmp_path / 's') as store:
    store.commit(3, SERVER)
    for wrong in (2, 3):
      with pytest.raises(ValueError, match=f'round_number is {wrong}; it must be more than 3'):
        store.commit(wrong, SERVER)
      with pytest.raises(ValueError, match='more than 3'):
        store.put(['a'], [_client(1)], wrong)
  with pytest.raises(ValueError, match='keep_checkpoints is 0'):
    _open(tmp_path / 's', keep_checkpoints=0)


def _sql(path, statement, *values):
  file = sqlite3.connect(path)
  count = file.execute(statement, values).rowcount
  file.commit()
  file.close()
  assert count


@pytest.mark.parametrize(
  'statement',
  [
    "UPDATE checkpoint SET metadata = '{}' WHERE round = 9",
    'UPDATE checkpoint SET clients = clients + 1 WHERE round = 9',
    "UPDATE checkpoint SET digest = '0' WHERE round = 9",
    'UPDATE checkpoint SET round = 10 WHERE round = 9',
    "UPDATE server_state SET dtype = '<i8' WHERE round = 9",
    "UPDATE server_state SET shape = '[2, 2]' WHERE round = 9",
    'UPDATE server_state SET data = zeroblob(32) WHERE round = 9',
    'DELETE FROM server_state WHERE round = 9',
    'DELETE FROM client_state',
    'DELETE FROM client_state WHERE round = 9',
    'UPDATE client_state SET checksum = zeroblob(16) WHERE round = 9',
    "UPDATE client_state SET checksum = 'text' WHERE round = 9",
    "UPDATE server_state SET name = '1' WHERE round = 9",
  ],
)
def test_a_checkpoint_that_was_edited_is_refused(tmp_path, statement):
  _fill(tmp_path / 's')
  _sql(tmp_path / 's', statement)
  with _open(tmp_path / 's') as store:
    with pytest.raises(StateError, match=r'/s: the checkpoint of round \d+ is damaged'):
      store.restore(SERVER)
    if statement != 'DELETE FROM client_state':
      assert store.restore(SERVER, 'previous').round_number in (6, 9)


@pytest.mark.parametrize(
  'statement',
  [
    'UPDATE client_state SET round = 8 WHERE round = 9',
    'UPDATE client_state SET state = zeroblob(16) WHERE round = 9',
    'UPDATE client_state SET state = zeroblob(3) WHERE round = 9',
    "UPDATE client_state SET state = x'00000000000000000000803f00000000' WHERE round = 9",
  ],
)
def test_a_client_state_that_was_edited_is_refused_when_it_is_read(tmp_path, statement):
  history = _fill(tmp_path / 's')
  last = next(i for i, t in history[9].items() if t == 9)
  _sql(tmp_path / 's', statement)
  with _open(tmp_path / 's') as store:
    store.restore(SERVER)
    match = f"the state of client '{last}' is damaged.*Resume from the previous .*of round 6"
    with pytest.raises(StateError, match=match):
      store.get([last])


def test_the_previous_checkpoint_is_not_advised_where_it_counts_the_same_damage(tmp_path):
  history = _fill(tmp_path / 's')
  old = next(i for i, t in history[9].items() if t <= 6)
  _sql(tmp_path / 's', 'UPDATE client_state SET state = zeroblob(12) WHERE id = ?', old)
  with _open(tmp_path / 's') as store:
    store.restore(SERVER)
    with pytest.raises(StateError, match=r'differs\. Bring back a copy'):
      store.get([old])


def test_checksums_are_of_all_that_is_stored_in_its_place():
  leaf = ('w', '<f8', '[1]', b'x')
  cases = [(3, '{}', 2, 'f', [leaf]), (4, '{}', 2, 'f', [leaf]), (3, '', 2, 'f', [leaf])]
  cases += [(3, '{}', 1, 'f', [leaf]), (3, '{}', 2, '', [leaf]), (3, '{}', 2, 'f', [leaf, leaf])]
  for i in range(4):
    other = [*leaf]
    other[i] += other[i]
    cases.append((3, '{}', 2, 'f', [tuple(other)]))
  cases.append(
    (3, '{}', 2, 'f', [('w<', 'f8', '[1]', b'x')])
  )  # The same letters, divided otherwise.
  assert len({state_file.checkpoint_checksum(*case) for case in cases}) == len(cases)


def test_a_layout_or_a_format_that_is_not_this_runs_is_refused_and_nothing_is_written(tmp_path):
  path = tmp_path / 's'
  _fill(path)
  before = path.read_bytes()
  with pytest.raises(StateError, match=r'its client states are .*float32.* of another algorithm'):
    state_store.ClientStateStore(str(path), (np.zeros(2),))
  assert path.read_bytes() == before
  _sql(path, "UPDATE run SET value = 'tff-adaptive-2' WHERE key = 'format'")
  before = path.read_bytes()
  with pytest.raises(StateError, match=r'format tff-adaptive-2, .* formats is commit e20f8c7'):
    _open(path)
  assert path.read_bytes() == before


def test_a_file_that_was_moved_gets_no_more_checkpoints_and_its_store_says_so_from_then_on(
  tmp_path,
):
  with _open(tmp_path / 's') as store:
    store.commit(0, _server(0))
    os.rename(tmp_path / 's', tmp_path / 'moved')
    with pytest.raises(SaveError, match='removed, renamed or replaced') as error:
      store.commit(1, _server(1))
    for again in (
      lambda: store.get(['a']),
      lambda: store.put(['a'], [_client(1)]),
      lambda: store.commit(2, _server(2)),
    ):
      with pytest.raises(SaveError) as found:
        again()
      assert found.value is error.value
  with _open(tmp_path / 'moved') as store:
    assert store.restore(SERVER).round_number == 0


def test_a_dead_journal_goes_when_a_run_goes_on(tmp_path):
  _fill(tmp_path / 's')
  with _open(tmp_path / 's') as store:
    store.restore(SERVER)
    journal = tmp_path / 's-journal'
    journal.write_bytes(b'')  # Of a process that was killed after SQLite had emptied it.
    store.forget_later(9)
  assert not journal.exists()


def test_after_going_on_from_the_previous_checkpoint_that_one_is_kept(tmp_path):
  history = _fill(tmp_path / 's')
  with _open(tmp_path / 's') as store:
    store.restore(SERVER, 'previous')
    store.forget_later(6)
    assert store._file.rounds == [6]
    store.commit(7, _server(7))
    assert store._file.rounds == [6, 7]
  with _open(tmp_path / 's') as store:
    assert store.restore(SERVER, 'previous').round_number == 6
    assert _found(store) == history[6]


def test_without_a_word_two_checkpoints_are_kept_and_rounds_begin_at_0(tmp_path):
  with state_store.ClientStateStore(str(tmp_path / 's'), INITIAL) as store:
    with pytest.raises(ValueError, match=r'round_number is -1; it must be more than -1'):
      store.commit(-1, _server(0))
    for t in range(4):
      store.commit(t, _server(t))
    assert store._file.rounds == [2, 3]
