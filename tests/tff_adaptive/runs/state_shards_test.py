"""Shards: a fold counts once, a checkpoint keeps its states, and damage is found."""

import contextlib
import json
import os
import pathlib
import shutil
import sqlite3
import threading

import pytest

from tff_adaptive.runs import staged_states, state_file, state_shards
from tff_adaptive.runs.errors import SaveError, StateError

IDS = [f'client {i}' for i in range(40)]
SHARD = 13
OURS = [c for c in IDS if state_shards.shard_of(c, state_shards.NUM_SHARDS) == SHARD]


@pytest.fixture
def folder(tmp_path):
  path = str(tmp_path / 'states')
  state_shards.create(path)
  state_shards.take_over(path, 'token', -1)
  return path


def _fold(folder, number, ids, last=-1, kept=(), token='token', text=b'v%03d'):
  """A fold of a checkpoint: each client's state is the round's number."""
  states = [text % number] * len(ids)
  places = staged_states.write(f'{folder}/staged', number, 'token', ids, states)
  rows = [(c, number, place) for c, place in zip(ids, places)]
  return state_shards.Fold(folder, SHARD, token, 4, rows, last, list(kept))


def _checksums(number, ids):
  return [
    int.from_bytes(state_file.client_checksum(c, number, b'v%03d' % number), 'big') for c in ids
  ]


def _rounds(folder, client_id):
  with contextlib.closing(sqlite3.connect(f'{folder}/shard-{SHARD:02d}.sqlite')) as file:
    query = 'SELECT round FROM client_state WHERE id = ? ORDER BY round'
    return [r for (r,) in file.execute(query, (client_id,))]


def test_a_folder_is_made_once_and_recognised(tmp_path):
  folder = str(tmp_path / 'a' / 'states')
  assert state_shards.read_marker(folder) == ''
  state_shards.create(folder)
  first = state_shards.read_marker(folder)
  assert state_shards.number_of_shards(folder) == 16
  state_shards.create(folder)
  assert state_shards.read_marker(folder) != first  # Of each folder its own.
  assert (tmp_path / 'a' / 'states' / 'staged').is_dir()


@pytest.mark.parametrize(
  'text, words',
  [
    ('{"format": "tff-adaptive-shards-1", "shards": 0}', 'with 0 shards'),
    ('{"format": "tff-adaptive-shards-1", "shards": 4097}', 'with 4097 shards'),
    ('{"format": "tff-adaptive-shards-1", "shards": 2.5}', r'with 2\.5 shards'),
    ('{"format": "other", "shards": 16}', 'is other with 16 shards, this version reads'),
    ('{"format": "tff-adaptive-shards-1"}', r"unknown \('shards'\)"),
    ('[]', 'unknown'),
    ('{', 'unknown'),
    ('[' * 100_000, 'unknown'),
    (b'\xff\xfe', 'unknown'),
  ],
)
def test_a_damaged_marker_is_an_error(folder, text, words):
  with open(f'{folder}/shards.json', 'wb') as file:
    file.write(text if isinstance(text, bytes) else text.encode())
  assert state_shards.read_marker(folder)
  with pytest.raises(StateError, match=words):
    state_shards.number_of_shards(folder)


@pytest.fixture
def new_folder(tmp_path):
  path = str(tmp_path / 'new')
  state_shards.create(path)
  return path


def _clients_in(folder, shards, ids):
  for shard in range(shards):
    with state_shards._writing(folder, shard) as file:
      rows = [(i, 1, b'', b'') for i in ids if state_shards.shard_of(i, shards) == shard]
      file.executemany('INSERT INTO client_state VALUES (?, ?, ?, ?)', rows)


@pytest.mark.parametrize('content', [None, '', ' \n'])
@pytest.mark.parametrize('shards', [1, 3, 16])
def test_a_lost_marker_is_made_again_of_the_shards(new_folder, content, shards):
  path = pathlib.Path(new_folder, 'shards.json')
  assert not state_shards.restore_marker(new_folder)  # It is there.
  path.unlink()
  assert not state_shards.restore_marker(new_folder)  # There are no shards yet.
  assert not path.exists()
  _clients_in(new_folder, shards, [f'client {i}' for i in range(40)])
  if content is not None:
    path.write_text(content)
  assert state_shards.restore_marker(new_folder)
  assert state_shards.number_of_shards(new_folder) == shards
  assert not state_shards.restore_marker(new_folder)


@pytest.mark.parametrize(
  'gone, message',
  [
    (['00'], 'shards.json is lost, and so is shard-00.sqlite'),
    (['05'], 'shards.json is lost, and so is shard-05.sqlite'),
    (['15'], 'so are shards: client .* is in another one of 15'),
    (['14', '15'], 'is in another one of 14'),
  ],
)
def test_a_lost_marker_is_not_made_of_a_part_of_the_shards(new_folder, gone, message):
  _clients_in(new_folder, 16, [f'client {i}' for i in range(40)])
  for name in ('shards.json', *(f'shard-{number}.sqlite' for number in gone)):
    os.remove(f'{new_folder}/{name}')
  with pytest.raises(StateError, match=message):
    state_shards.restore_marker(new_folder)
  assert not os.path.exists(f'{new_folder}/shards.json')


def test_a_lost_marker_is_not_made_of_damaged_shards(new_folder):
  _clients_in(new_folder, 4, ['a', 'b'])
  os.remove(f'{new_folder}/shards.json')
  pathlib.Path(new_folder, 'shard-02.sqlite').write_bytes(b'nothing of the kind' * 100)
  with pytest.raises(StateError, match=r'shard-02\.sqlite: cannot be read'):
    state_shards.restore_marker(new_folder)
  assert not os.path.exists(f'{new_folder}/shards.json')


@pytest.mark.parametrize('shards', [1, 2, 4096])
def test_any_number_of_shards_is_taken(folder, shards):
  with open(f'{folder}/shards.json', 'w') as file:
    json.dump({'format': 'tff-adaptive-shards-1', 'shards': shards}, file)
  assert state_shards.number_of_shards(folder) == shards


def test_a_client_has_one_shard_on_every_machine():
  # CRC-32 of '123456789', the published check value, is CBF43926.
  assert state_shards.shard_of('123456789', 16) == 0x6
  assert state_shards.shard_of('123456789', 1000) == 0xCBF43926 % 1000
  groups = state_shards.group(IDS, 16)
  assert sorted(i for positions in groups.values() for i in positions) == list(range(40))
  for shard, positions in groups.items():
    assert {state_shards.shard_of(IDS[i], 16) for i in positions} == {shard}


def test_a_fold_says_what_it_changes_and_done_again_it_changes_nothing(folder):
  first = _checksums(1, OURS)
  change = state_shards.fold(_fold(folder, 1, OURS))
  assert change == (len(OURS), sum(first))
  assert state_shards.totals(folder, 1) == change
  assert state_shards.totals(folder, 0) == (0, 0)
  again = _fold(folder, 2, OURS[1:], last=1, kept=[1])
  expected = (0, sum(_checksums(2, OURS[1:])) - sum(first[1:]))
  for _ in range(2):
    assert state_shards.fold(again) == expected
    assert state_shards.totals(folder, 2) == (len(OURS), sum(first) + expected[1])
    assert state_shards.totals(folder, 1) == (len(OURS), sum(first))
  third = _fold(folder, 5, OURS[1:], last=2, kept=[1, 2])
  expected = (0, sum(_checksums(5, OURS[1:])) - sum(_checksums(2, OURS[1:])))
  assert state_shards.fold(third) == expected


def test_what_no_checkpoint_counts_goes(folder):
  (client, *_) = OURS
  last, kept = -1, []
  for number in (0, 2, 3, 7, 8):
    state_shards.fold(_fold(folder, number, [client], last, kept))
    last, kept = number, [*kept, number][-2:]
  assert _rounds(folder, client) == [3, 7, 8]
  # Of checkpoints at 4 and 7, the one counts what was made at 3.
  state_shards.fold(_fold(folder, 9, [client], 8, [4, 7]))
  assert _rounds(folder, client) == [3, 7, 9]


def test_a_reader_gives_what_a_checkpoint_counts(folder):
  (client, other, *_) = OURS
  for number, last in ((0, -1), (4, 0)):
    state_shards.fold(_fold(folder, number, [client], last, [0]))
  reader = state_shards.Reader(folder)
  found = {number: reader.read(client, number) for number in (-1, 0, 1, 3, 4, 9)}
  assert found == {-1: None, 0: b'v000', 1: b'v000', 3: b'v000', 4: b'v004', 9: b'v004'}
  assert reader.read(other, 9) is None
  (connection,) = reader._files.values()  # One for a shard, and it stays open.
  reader.close()
  with pytest.raises(sqlite3.ProgrammingError):
    connection.execute('SELECT 1')
  assert reader.read(client, 4) == b'v004'
  reader.close()


def test_what_a_writer_that_was_killed_left_is_rolled_back_by_who_reads(folder, tmp_path):
  state_shards.fold(_fold(folder, 1, OURS))
  expected = state_shards.totals(folder, 1)
  path = os.path.join(folder, f'shard-{SHARD:02d}.sqlite')
  with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
    file.execute('PRAGMA cache_size=1')
    file.execute('BEGIN IMMEDIATE')  # Large, so that it reaches the file before it is committed.
    file.execute('UPDATE client_state SET state = zeroblob(1000000), checksum = zeroblob(8)')
    for name in ('killed', 'marker'):
      shutil.copytree(folder, tmp_path / name)
    file.execute('ROLLBACK')
  killed = str(tmp_path / 'killed')
  shard = os.path.join(killed, os.path.basename(path))
  with (
    contextlib.closing(sqlite3.connect(f'file:{shard}?mode=ro', uri=True)) as file,
    pytest.raises(sqlite3.OperationalError, match='readonly'),
  ):
    file.execute('SELECT * FROM client_state').fetchall()
  reader = state_shards.Reader(killed)
  assert reader.read(OURS[0], 1) == b'v001'
  reader.close()
  assert state_shards.totals(killed, 1) == expected
  os.unlink(tmp_path / 'marker' / state_shards.MARKER)
  assert state_shards.restore_marker(str(tmp_path / 'marker'))


def test_a_reader_may_be_used_in_other_threads(folder):
  state_shards.fold(_fold(folder, 1, OURS))
  reader = state_shards.Reader(folder)
  found = [reader.read(OURS[0], 1)]
  thread = threading.Thread(target=lambda: found.append(reader.read(OURS[0], 1)))
  thread.start()
  thread.join()
  assert found == [b'v001'] * 2
  reader.close()


def test_whoever_takes_over_begins_from_the_checkpoint(folder, tmp_path):
  state_shards.fold(_fold(folder, 1, OURS))
  state_shards.fold(_fold(folder, 2, OURS, 1, [1]))
  state_shards.take_over(folder, 'later', 1)
  assert not list((tmp_path / 'states' / 'staged').iterdir())
  assert len(list((tmp_path / 'states').glob('shard-*.sqlite'))) == 16
  assert _rounds(folder, OURS[0]) == [1]
  with pytest.raises(StateError, match='another process has gone on with this run'):
    state_shards.fold(_fold(folder, 2, OURS, 1, [1]))
  assert state_shards.fold(_fold(folder, 2, OURS, 1, [1], token='later')).clients == 0


def test_a_staging_folder_that_has_gone_is_made_anew_and_another_thing_there_is_named(folder):
  os.rmdir(f'{folder}/staged')
  state_shards.take_over(folder, 'token', -1)
  assert state_shards.fold(_fold(folder, 1, OURS)).clients == len(OURS)
  shutil.rmtree(f'{folder}/staged')
  with open(f'{folder}/staged', 'w'):
    pass
  with pytest.raises(StateError, match='states/staged: is not a folder: remove it'):
    state_shards.take_over(folder, 'token', 1)
  os.unlink(f'{folder}/staged')
  os.makedirs(f'{folder}/staged/folder')
  with pytest.raises(SaveError, match='states/staged: cannot be emptied: '):
    state_shards.take_over(folder, 'token', 1)


def test_a_fold_that_fails_leaves_the_shard_as_it_was(folder):
  state_shards.fold(_fold(folder, 1, OURS))
  work = _fold(folder, 2, OURS, 1, [1])
  work.rows[-1] = (*work.rows[-1][:2], work.rows[-1][2]._replace(checksum=b'0' * 16))
  with pytest.raises(StateError, match='checksum'):
    state_shards.fold(work)
  assert _rounds(folder, OURS[0]) == [1]


def _execute(path, statement):
  with contextlib.closing(sqlite3.connect(path)) as file:
    file.execute(statement)
    file.commit()


@pytest.mark.parametrize('state', ["x'76303039'", "'v001'", '7'])
def test_damage_is_named(folder, tmp_path, state):
  counted = state_shards.fold(_fold(folder, 1, OURS))
  path = tmp_path / 'states' / 'shard-13.sqlite'
  _execute(path, f'UPDATE client_state SET round = 0, state = {state}')
  reader = state_shards.Reader(folder)
  with pytest.raises(
    StateError, match=f"shard-13.sqlite: the state of client '{OURS[0]}' is damaged"
  ):
    reader.read(OURS[0], 1)
  reader.close()
  _execute(path, 'UPDATE client_state SET checksum = 7')  # Of a type that no checksum has.
  assert state_shards.totals(folder, 1) != counted
  assert state_shards.fold(_fold(folder, 2, OURS, 1, [1])).clients == 0
  path.write_bytes(b'x' * 1000)
  for read in (lambda: state_shards.totals(folder, 1), lambda: reader.read(OURS[0], 1)):
    with pytest.raises(StateError, match=r'shard-13\.sqlite: cannot be read: .*not a database'):
      read()
  with pytest.raises(SaveError, match=r'shard-13\.sqlite: cannot be written: .*not a database'):
    state_shards.fold(_fold(folder, 2, OURS))


def test_others_are_waited_for_and_a_commit_is_on_the_disk(folder, monkeypatch):
  with contextlib.closing(sqlite3.connect(f'{folder}/shard-00.sqlite')) as file:
    assert file.execute('PRAGMA page_size').fetchall() == [(16384,)]
  given, statements = [], []
  connect = sqlite3.connect

  def spy(*arguments, **options):
    given.append(options['timeout'])
    connection = connect(*arguments, **options)
    connection.set_trace_callback(statements.append)
    return connection

  monkeypatch.setattr(sqlite3, 'connect', spy)
  state_shards.fold(_fold(folder, 1, OURS))
  assert given == [60.0]
  begin = statements.index('BEGIN IMMEDIATE')
  assert 'PRAGMA synchronous=FULL' in statements[:begin]
  assert statements[-1] == 'COMMIT'


def test_a_shard_that_a_stopped_process_holds_is_an_error_that_says_what_helps(folder, monkeypatch):
  monkeypatch.setattr(state_shards, '_SECONDS', 0.1)
  work = _fold(folder, 1, OURS)
  with state_shards._writing(folder, SHARD):  # As one that is stopped in the midst of a fold.
    message = (
      rf'shard-{SHARD}\.sqlite: cannot be written: .*locked .* Kill it \(kill -9\), and give'
    )
    with pytest.raises(SaveError, match=message):
      state_shards.fold(work)
  assert state_shards.fold(work).clients == len(OURS)  # It has been killed.
