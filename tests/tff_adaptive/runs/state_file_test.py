"""The state file: versions and checkpoints, checksums, files of others, failures to write."""

import contextlib
import os
import random
import shutil
import sqlite3
import threading

import numpy as np
import pytest

from tff_adaptive import runs
from tff_adaptive.runs import state_file
from tff_adaptive.runs.errors import SaveError, StateError
from tff_adaptive.runs.state_file import Count, StateFile, client_checksum

IDS = ['a', 'b', 'é']
INITIAL = (np.zeros(3, np.float32),)
SERVER = (np.zeros(4, np.float64),)


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 's')


def _write(path, number, ids, numbers=()):
  """Writes a round's states, each its number; returns what there is more of."""
  with contextlib.closing(StateFile(path, is_writer=True)) as file:
    total = Count()
    for client_id in ids:
      total = total.plus(file.write_client(client_id, number, b'v%d' % number, list(numbers)))
    file.commit()
  return total


def _digest(number, ids):
  return sum(int.from_bytes(client_checksum(c, number, b'v%d' % number), 'big') for c in ids)


def _sql(path, *statements):
  with contextlib.closing(sqlite3.connect(path)) as file:
    for statement in statements:
      assert file.execute(statement).rowcount
    file.commit()


def _client(value):
  return (np.full(3, value, np.float32),)


def _server(value):
  return (np.full(4, value, np.float64),)


def _open(path):
  return runs.ClientStateStore(path, INITIAL)


def _fill(path, rounds=9, every=3):
  """Rounds of three clients of nine; returns, for each checkpoint, what each client had."""
  rng = random.Random(0)
  present = {}
  history = {0: {}}
  with _open(path) as store:
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


def test_a_checkpoint_counts_the_newest_state_that_is_not_later(path):
  assert _write(path, 0, ['a']) == (1, _digest(0, ['a']))
  assert _write(path, 4, IDS, [0]) == (2, _digest(4, IDS) - _digest(0, ['a']))
  with contextlib.closing(StateFile(path, is_writer=True)) as file:
    states = {number: file.read_client('a', number) for number in (-1, 0, 1, 3, 4, 9)}
    assert states == {-1: None, 0: b'v0', 1: b'v0', 3: b'v0', 4: b'v4', 9: b'v4'}
    assert file.read_client('b', 3) is None
    assert file.count(3) == (1, _digest(0, ['a']))
    assert file.count(4) == (3, _digest(4, IDS))
    more = file.write_client('a', 2, b'v2', [])  # Of a round before one that is there.
    assert more == (0, _digest(2, ['a']) - _digest(0, ['a']))
    file.write_client('a', 5, b'v5', [])  # Not committed.
    assert file.read_client('a') == b'v5'
  with contextlib.closing(StateFile(path)) as file:
    states = [file.read_client('a')]
    thread = threading.Thread(target=lambda: states.append(file.read_client('a')))
    thread.start()
    thread.join()
  assert states == [b'v4'] * 2


def test_checksums_are_of_all_that_is_stored_in_its_place():
  cases = [('a', 1, b'x'), ('b', 1, b'x'), ('a', 2, b'x'), ('a', 1, b'y'), ('a1', 1, b'x')]
  cases += [('a', 11, b'x')]  # The same letters, divided otherwise.
  assert len({client_checksum(*case) for case in cases}) == len(cases)
  assert client_checksum('a', 1, b'x').hex() == '4e1cd08714a51134a01cd7daf3cfe76e'  # It stays so.
  assert Count(0, -1).text == 'f' * 32
  leaf = ('w', '<f8', '[1]', b'x')
  # Each differs from the first in one argument: the number, metadata, count, checksum or leaves.
  cases = [(3, '{}', 2, 'f', [leaf])]
  cases.append((4, '{}', 2, 'f', [leaf]))
  cases.append((3, '', 2, 'f', [leaf]))
  cases.append((3, '{}', 1, 'f', [leaf]))
  cases.append((3, '{}', 2, '', [leaf]))
  cases.append((3, '{}', 2, 'f', [leaf, leaf]))
  for i in range(4):
    cases.append((3, '{}', 2, 'f', [(*leaf[:i], leaf[i] * 2, *leaf[i + 1 :])]))
  cases.append((3, '{}', 2, 'f', [('w<', 'f8', '[1]', b'x')]))  # The same letters again.
  assert len({state_file.checkpoint_checksum(*case) for case in cases}) == len(cases)


@pytest.mark.parametrize(
  'change, written, advice',
  [
    ('round = 8', 9, 'Resume from the previous checkpoint, of round 6'),
    *((f'state = {value}', 9, 'Resume') for value in ('zeroblob(16)', "x'7639'", "'v1'", '7')),
    ('state = zeroblob(12)', 6, 'Restore a copy'),  # The previous one counts it too.
  ],
)
def test_a_client_state_that_was_edited_is_refused_when_it_is_read(path, change, written, advice):
  history = _fill(path)
  victim = next(i for i, t in history[9].items() if t == written)
  _sql(path, f'UPDATE client_state SET {change} WHERE round = {written}')
  with _open(path) as store:
    store.restore(SERVER)
    match = rf"the state of client '{victim}' is damaged.*\. {advice}"
    with pytest.raises(StateError, match=match):
      store.get([victim])


@pytest.mark.parametrize(
  'statement',
  [
    "UPDATE checkpoint SET metadata = '{}' WHERE round = 9",
    'UPDATE checkpoint SET round = 10 WHERE round = 9',
    "UPDATE server_state SET data = 'text' WHERE round = 9",
    "UPDATE server_state SET name = x'30' WHERE round = 9",
    'DELETE FROM server_state WHERE round = 9',
    'DELETE FROM client_state',
    'DELETE FROM client_state WHERE round = 9',
    'UPDATE client_state SET checksum = zeroblob(16) WHERE round = 9',
    "UPDATE client_state SET checksum = 'text' WHERE round = 9",
  ],
)
def test_a_checkpoint_that_was_edited_is_refused(path, statement):
  _fill(path)
  _sql(path, statement)
  with _open(path) as store:
    with pytest.raises(StateError, match=r'/s: the checkpoint of round \d+ is damaged'):
      store.restore(SERVER)
    if statement != 'DELETE FROM client_state':
      assert store.restore(SERVER, 'previous').round_number in (6, 9)


def test_each_checkpoint_that_is_kept_has_its_own_client_states(path):
  history = _fill(path, 30)
  for t in (30, 27):
    with _open(path) as store:
      assert store._file.rounds == ([27, 30] if t == 30 else [27])
      checkpoint = store.restore(SERVER)
      assert checkpoint.round_number == t
      np.testing.assert_array_equal(checkpoint.server_state[0], np.full(4, t))
      assert _found(store) == history[t]
      # The versions that no checkpoint counts are gone, but for those of clients not seen since.
      versions = store._file.rows('SELECT id, COUNT(*) FROM client_state GROUP BY id')
      assert max(count for _, count in versions) <= 2
      if t == 30:
        store.forget_later(store.restore(SERVER, 'previous').round_number)
        continue
      with pytest.raises(StateError, match='one checkpoint only, of round 27: there is no'):
        store.restore(SERVER, 'previous')


@pytest.mark.parametrize('is_full', [True, False])
def test_the_first_failure_to_write_is_the_last(path, is_full):
  if is_full:
    message = 'the disk is full; free some'
  else:
    message = 'it was removed, renamed or replaced'
  with _open(path) as store:
    store.put(['a'], [_client(1)])
    store.commit(0, _server(0))
    if is_full:
      store._file.rows(f'PRAGMA max_page_count = {store._file.rows("PRAGMA page_count")[0][0]}')
    else:
      os.rename(path, path + ' moved')
    with pytest.raises(SaveError, match=f'cannot be written: {message}') as error:
      store.commit(1, (np.zeros(100_000),))
    for again in (
      lambda: store.get(['a']),
      lambda: store.put(['a'], [_client(1)]),
      store._file.commit,
      lambda: store._file.count(1),
    ):
      with pytest.raises(SaveError) as raised:
        again()
      assert raised.value is error.value
  with _open(path if is_full else path + ' moved') as store:
    assert store.restore(SERVER).round_number == 0
    assert _found(store) == {'a': 1}


@pytest.mark.parametrize(
  'statement',
  [
    'CREATE TRIGGER t AFTER INSERT ON client_state BEGIN DELETE FROM run; END',
    'ALTER TABLE client_state ADD COLUMN more AS (upper(id))',
    'DROP INDEX client_versions',
  ],
)
def test_a_file_with_other_tables_triggers_or_views_is_refused(path, statement):
  _write(path, 1, IDS)
  _sql(path, statement)
  for is_writer in (True, False):
    with pytest.raises(StateError, match=r'/s has other tables than the states of a run'):
      StateFile(path, is_writer=is_writer)


def test_another_programs_file_is_refused_as_it_is(path, tmp_path):
  _sql(path, 'CREATE VIEW run AS SELECT 1')
  with pytest.raises(StateError, match='has other tables'):
    StateFile(path, is_writer=True)
  noise = tmp_path / 'noise.sqlite'
  noise.write_bytes(b'noise' * 500)
  with pytest.raises(StateError, match=r'cannot be opened: it is damaged \(file is not a database'):
    StateFile(str(noise))
  assert noise.read_bytes() == b'noise' * 500


def test_a_file_that_is_not_there_is_not_made_for_a_reader(tmp_path):
  with pytest.raises(StateError, match='cannot be opened'):
    StateFile(str(tmp_path / 'none.sqlite'))
  assert not (tmp_path / 'none.sqlite').exists()


def test_a_file_of_another_layout_or_format_is_refused_as_it_is(tmp_path):
  another = tmp_path / 'own'
  _fill(str(another))
  before = another.read_bytes()
  with pytest.raises(StateError, match=r'its client states are .*float32.* of another algorithm'):
    runs.ClientStateStore(str(another), (np.zeros(2),))
  assert another.read_bytes() == before
  _sql(str(another), "UPDATE run SET value = 'tff-adaptive-2' WHERE key = 'format'")
  before = another.read_bytes()
  with pytest.raises(StateError, match=r'format tff-adaptive-2, .* that wrote it, or start in a'):
    _open(str(another))
  assert another.read_bytes() == before


def test_a_run_of_release_0_2_0_with_shards_is_refused_and_left_as_it_is(path):
  with contextlib.closing(StateFile(path, signature='x')) as file:
    file.set('clients', 'shards')
    file.save(1, {}, {'w': np.zeros(2)})
  with open(path, 'rb') as before:
    octets = before.read()
  with pytest.raises(StateError, match=r'in shards .* run with tff-adaptive 0\.2\.0, or'):
    StateFile(path, signature='x')
  with open(path, 'rb') as after:
    assert after.read() == octets
  assert state_file.read_last(path)[0] == 1  # Its model can be exported.


def test_a_file_is_on_the_disk_trusts_no_schema_and_may_be_held(path):
  pragmas = ('page_size', 'locking_mode', 'synchronous', 'secure_delete', 'trusted_schema')
  for signature, mode in (('x', 'exclusive'), (None, 'normal')):
    with contextlib.closing(StateFile(path, is_writer=True, signature=signature)) as file:
      file.commit()
      assert [file.rows(f'PRAGMA {name}')[0][0] for name in pragmas] == [16384, mode, 2, 0, 0]
      assert file.rows('PRAGMA journal_mode') == [('delete',)]
      assert file.rows('PRAGMA busy_timeout') == [(1000,)]


def test_what_another_holds_is_waited_for_and_then_named(path, monkeypatch):
  monkeypatch.setattr(StateFile, 'seconds', 0.05)
  with contextlib.closing(StateFile(path, signature='x')):
    for is_writer in (True, False):
      with pytest.raises(StateError, match='cannot be opened: another process is using it; wait'):
        StateFile(path, is_writer=is_writer)
  monkeypatch.setattr(StateFile, 'seconds', 30.0)
  holder = StateFile(path, is_writer=True)
  timer = threading.Timer(0.1, holder.close)
  timer.start()
  StateFile(path, is_writer=True).close()
  timer.join()


def test_what_a_writer_that_was_killed_left_is_rolled_back_by_who_reads(path):
  expected = _write(path, 1, IDS)
  killed = path + ' killed'
  with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
    file.execute('PRAGMA cache_size=1')
    file.execute('BEGIN IMMEDIATE')  # Large, so that it reaches the file before it is committed.
    file.execute('UPDATE client_state SET state = zeroblob(1000000), checksum = zeroblob(8)')
    for suffix in ('', '-journal'):
      shutil.copy(path + suffix, killed + suffix)
    file.execute('ROLLBACK')
  with contextlib.closing(StateFile(killed)) as file:
    assert file.read_client('a') == b'v1'
    assert file.count(1) == expected


def test_a_dead_journal_goes_when_a_run_goes_on(path):
  _fill(path)
  with _open(path) as store:
    store.restore(SERVER)
    with open(path + '-journal', 'wb'):  # Of a process that was killed after it was emptied.
      pass
    store.forget_later(9)
  assert not os.path.exists(path + '-journal')
