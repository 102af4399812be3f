"""Versions of client states: what a checkpoint counts stays, damage and foreign files are found."""

import contextlib
import shutil
import sqlite3
import threading

import pytest

from tff_adaptive.runs.errors import SaveError, StateError
from tff_adaptive.runs.state_database import Count, StateDatabase, client_checksum

IDS = ['a', 'b', 'é']


@pytest.fixture
def path(tmp_path):
  return str(tmp_path / 'states.sqlite')


def _write(path, number, ids, kept=()):
  """Writes a round's states, each its number; returns what there is more of."""
  with contextlib.closing(StateDatabase(path, is_writer=True)) as file:
    total = Count()
    for client_id in ids:
      total = total.plus(file.write_client(client_id, number, b'v%d' % number, list(kept)))
    file.commit()
  return total


def _digest(number, ids):
  return sum(int.from_bytes(client_checksum(c, number, b'v%d' % number), 'big') for c in ids)


def _sql(path, *statements):
  with contextlib.closing(sqlite3.connect(path)) as file:
    for statement in statements:
      file.execute(statement)
    file.commit()


def test_a_checkpoint_counts_the_newest_state_that_is_not_later(path):
  assert _write(path, 0, ['a']) == (1, _digest(0, ['a']))
  assert _write(path, 4, IDS, [0]) == (2, _digest(4, IDS) - _digest(0, ['a']))
  with contextlib.closing(StateDatabase(path)) as file:
    found = {number: file.read_client('a', number) for number in (-1, 0, 1, 3, 4, 9)}
    assert found == {-1: None, 0: b'v0', 1: b'v0', 3: b'v0', 4: b'v4', 9: b'v4'}
    assert (file.read_client('a'), file.read_client('b', 3)) == (b'v4', None)
    assert file.count(3) == (1, _digest(0, ['a']))
    assert file.count(4) == (3, _digest(4, IDS))


def test_what_no_checkpoint_counts_goes(path):
  kept = []
  for number in (0, 2, 3, 7, 8):
    _write(path, number, ['a'], kept)
    kept = [*kept, number][-2:]
  query = 'SELECT round FROM client_state ORDER BY round'
  with contextlib.closing(StateDatabase(path)) as file:
    assert file.rows(query) == [(3,), (7,), (8,)]
  _write(path, 9, ['a'], [4, 7])  # The one at 4 counts what was made at 3.
  with contextlib.closing(StateDatabase(path)) as file:
    assert file.rows(query) == [(3,), (7,), (9,)]


def test_what_was_not_committed_is_dropped(path):
  _write(path, 1, IDS)
  with contextlib.closing(StateDatabase(path, is_writer=True)) as file:
    file.write_client('a', 2, b'v2', [])
    assert file.read_client('a') == b'v2'
  with contextlib.closing(StateDatabase(path)) as file:
    assert file.read_client('a') == b'v1'


def test_states_that_change_places_are_noticed():
  cases = [('a', 1, b'x'), ('b', 1, b'x'), ('a', 2, b'x'), ('a', 1, b'y'), ('a1', 1, b'x')]
  cases += [('a', 11, b'x')]  # The same letters, divided otherwise.
  assert len({client_checksum(*case) for case in cases}) == len(cases)
  assert client_checksum('a', 1, b'x').hex() == '4e1cd08714a51134a01cd7daf3cfe76e'  # It stays so.


@pytest.mark.parametrize('state', ["x'7639'", "'v1'", '7'])
def test_a_damaged_state_is_named(path, state):
  counted = _write(path, 1, IDS)
  _sql(path, f'UPDATE client_state SET round = 0, state = {state}')
  with contextlib.closing(StateDatabase(path)) as file:
    with pytest.raises(StateError, match=r"states\.sqlite: the state of client 'b' is damaged"):
      file.read_client('b', 1)
    assert file.count(1) == counted  # Checksums are of states: who reads one checks it.
  _sql(path, "UPDATE client_state SET checksum = 7 WHERE id = 'a'")  # Of a type that none has.
  with contextlib.closing(StateDatabase(path)) as file:
    assert file.count(1) != counted


def test_the_first_failure_to_write_is_the_last(path):
  _write(path, 1, IDS)
  with contextlib.closing(StateDatabase(path, is_writer=True)) as file:
    file.rows(f'PRAGMA max_page_count = {file.rows("PRAGMA page_count")[0][0]}')
    with pytest.raises(SaveError, match=r'cannot be written: the disk is full; free some') as error:
      file.write_client('a', 2, bytes(100_000), [1])
    for again in (file.commit, lambda: file.read_client('a'), lambda: file.count(1), file.check):
      with pytest.raises(SaveError) as found:
        again()
      assert found.value is error.value
  with contextlib.closing(StateDatabase(path)) as file:
    assert file.count(1) == (3, _digest(1, IDS))


@pytest.mark.parametrize(
  'statement',
  [
    'CREATE TRIGGER t AFTER INSERT ON client_state BEGIN DELETE FROM run; END',
    'CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x FROM c) SELECT x FROM c',
    'CREATE TABLE more (x)',
    'ALTER TABLE client_state ADD COLUMN more AS (upper(id))',
    'DROP INDEX client_versions',
  ],
)
@pytest.mark.parametrize('is_writer', [True, False])
def test_a_file_with_other_tables_triggers_or_views_is_refused(path, statement, is_writer):
  _write(path, 1, IDS)
  _sql(path, statement)
  with pytest.raises(StateError, match=r'states\.sqlite has other tables than the states of a run'):
    StateDatabase(path, is_writer=is_writer)


def test_another_programs_file_or_another_format_is_refused_as_it_is(path, tmp_path):
  _sql(path, 'CREATE VIEW run AS SELECT 1')
  for is_writer in (True, False):
    with pytest.raises(StateError, match='has other tables'):
      StateDatabase(path, is_writer=is_writer)
  old = str(tmp_path / 'old.sqlite')
  _sql(old, StateDatabase.tables[0], "INSERT INTO run VALUES ('format', 'tff-adaptive-2')")
  with pytest.raises(StateError, match=r'old\.sqlite has the format tff-adaptive-2, .*e20f8c7'):
    StateDatabase(old, is_writer=True)
  noise = tmp_path / 'noise.sqlite'
  noise.write_bytes(b'noise' * 500)
  with pytest.raises(StateError, match=r'cannot be opened: it is damaged \(file is not a database'):
    StateDatabase(str(noise))
  assert noise.read_bytes() == b'noise' * 500
  with pytest.raises(StateError, match='cannot be opened'):
    StateDatabase(str(tmp_path / 'none.sqlite'))
  assert not (tmp_path / 'none.sqlite').exists()


def test_a_file_is_on_the_disk_trusts_no_schema_and_may_be_held(path):
  pragmas = ('page_size', 'locking_mode', 'synchronous', 'secure_delete', 'trusted_schema')
  for is_held, mode in ((True, 'exclusive'), (False, 'normal')):
    with contextlib.closing(StateDatabase(path, is_writer=True, is_held=is_held)) as file:
      file.commit()
      assert [file.rows(f'PRAGMA {name}')[0][0] for name in pragmas] == [16384, mode, 2, 0, 0]
      assert file.rows('PRAGMA journal_mode') == [('delete',)]


def test_what_another_holds_is_waited_for_and_then_named(path, monkeypatch):
  _write(path, 1, IDS)
  monkeypatch.setattr(StateDatabase, 'seconds', 0.05)
  with contextlib.closing(StateDatabase(path, is_writer=True, is_held=True)) as held:
    held.commit()
    for is_writer in (True, False):
      with pytest.raises(StateError, match='cannot be opened: another process is using it; wait'):
        StateDatabase(path, is_writer=is_writer)
  monkeypatch.setattr(StateDatabase, 'seconds', 30.0)
  holder = StateDatabase(path, is_writer=True)
  timer = threading.Timer(0.1, holder.close)
  timer.start()
  StateDatabase(path, is_writer=True).close()
  timer.join()


def test_what_a_writer_that_was_killed_left_is_rolled_back_by_who_reads(path, tmp_path):
  expected = _write(path, 1, IDS)
  killed = str(tmp_path / 'killed.sqlite')
  with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
    file.execute('PRAGMA cache_size=1')
    file.execute('BEGIN IMMEDIATE')  # Large, so that it reaches the file before it is committed.
    file.execute('UPDATE client_state SET state = zeroblob(1000000), checksum = zeroblob(8)')
    for suffix in ('', '-journal'):
      shutil.copy(path + suffix, killed + suffix)
    file.execute('ROLLBACK')
  with contextlib.closing(StateDatabase(killed)) as file:
    assert file.read_client('a') == b'v1'
    assert file.count(1) == expected


def test_a_file_may_be_read_in_other_threads(path):
  _write(path, 1, IDS)
  with contextlib.closing(StateDatabase(path)) as file:
    found = [file.read_client('a')]
    thread = threading.Thread(target=lambda: found.append(file.read_client('a')))
    thread.start()
    thread.join()
  assert found == [b'v1'] * 2
