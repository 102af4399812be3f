"""Shards: a fold counts once, whoever takes over begins from the checkpoint, damage is found."""

import contextlib
import os
import pathlib

import pytest

from tff_adaptive.runs import state_shards
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import client_checksum

IDS = [f'client {i}' for i in range(40)]
SHARD = 13
OURS = [c for c in IDS if state_shards.shard_of(c) == SHARD]


@pytest.fixture
def folder(tmp_path):
  path = str(tmp_path / 'states')
  state_shards.create(path)
  state_shards.take_over(path, 'token', -1)
  return path


def _fold(folder, number, ids, last=-1, kept=(), token='token'):
  """A fold of a checkpoint: each client's state is the round's number."""
  states = [b'v%03d' % number] * len(ids)
  places = state_shards.stage(folder, number, 'token', ids, states)
  rows = [(c, number, place) for c, place in zip(ids, places)]
  return state_shards.Fold(folder, SHARD, token, 4, rows, last, list(kept))


def _digest(number, ids):
  return sum(int.from_bytes(client_checksum(c, number, b'v%03d' % number), 'big') for c in ids)


def _rounds(folder, client_id):
  with contextlib.closing(state_shards.Shard(folder, SHARD)) as shard:
    query = 'SELECT round FROM client_state WHERE id = ? ORDER BY round'
    return [r for (r,) in shard.rows(query, client_id)]


def test_a_client_has_one_shard_on_every_machine():
  # CRC-32 of '123456789', the published check value, is CBF43926.
  assert state_shards.shard_of('123456789') == 0x6


def test_a_fold_says_what_it_changes_and_done_again_it_changes_nothing(folder):
  first = _digest(1, OURS)
  change = state_shards.fold(_fold(folder, 1, OURS))
  assert change == (len(OURS), first)
  assert state_shards.count(folder, 1) == change
  assert state_shards.count(folder, 0) == (0, 0)
  again = _fold(folder, 2, OURS[1:], last=1, kept=[1])
  expected = (0, _digest(2, OURS[1:]) - _digest(1, OURS[1:]))
  for _ in range(2):
    assert state_shards.fold(again) == expected
    assert state_shards.count(folder, 2) == (len(OURS), first + expected[1])
    assert state_shards.count(folder, 1) == (len(OURS), first)
  third = _fold(folder, 5, OURS[1:], last=2, kept=[1, 2])
  assert state_shards.fold(third) == (0, _digest(5, OURS[1:]) - _digest(2, OURS[1:]))
  state_shards.fold(_fold(folder, 6, OURS[1:], last=5, kept=[2, 5]))
  assert _rounds(folder, OURS[1]) == [2, 5, 6]


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


def test_a_fold_that_fails_leaves_the_shard_as_it_was(folder):
  state_shards.fold(_fold(folder, 1, OURS))
  work = _fold(folder, 2, OURS, 1, [1])
  work.rows[-1] = (*work.rows[-1][:2], work.rows[-1][2]._replace(checksum=b'0' * 16))
  with pytest.raises(StateError, match='checksum'):
    state_shards.fold(work)
  assert _rounds(folder, OURS[0]) == [1]


def test_a_damaged_or_a_missing_shard_is_named(folder, tmp_path):
  state_shards.fold(_fold(folder, 1, OURS))
  path = tmp_path / 'states' / 'shard-13.sqlite'
  path.write_bytes(b'x' * 1000)
  attempts = (
    lambda: state_shards.count(folder, 1),
    lambda: state_shards.fold(_fold(folder, 2, OURS)),
    lambda: state_shards.take_over(folder, 'token', 1),
  )
  for attempt in attempts:
    with pytest.raises(StateError, match=r'shard-13\.sqlite: cannot be opened: .*not a database'):
      attempt()
  path.unlink()
  with pytest.raises(StateError, match=r'shard-13\.sqlite: cannot be opened: unable'):
    state_shards.count(folder, 1)


def test_a_shard_that_a_stopped_process_holds_is_an_error_that_says_what_helps(folder, monkeypatch):
  monkeypatch.setattr(state_shards.Shard, 'seconds', 0.1)
  work = _fold(folder, 1, OURS)
  # As one that is stopped in the midst of a fold.
  with contextlib.closing(state_shards.Shard(folder, SHARD, is_writer=True)):
    message = rf'shard-{SHARD}\.sqlite: cannot be .*locked .* Kill it \(kill -9\), and give'
    with pytest.raises(StateError, match=message):
      state_shards.fold(work)
  assert state_shards.fold(work).clients == len(OURS)  # It has been killed.


NAMES = ['a', 'b', 'é']
STATES = [b'aaaa', b'bbbb', b'cccc']


def _read(folder, places, ids=NAMES):
  return dict(state_shards.read_staged(folder, 4, list(zip(ids, places))))


@pytest.fixture
def places(folder):
  return state_shards.stage(folder, 7, 'token', NAMES, STATES)


def test_a_subround_is_one_file_from_which_any_state_is_read(places, folder):
  (name,) = os.listdir(f'{folder}/staged')
  assert [(p.name, p.row) for p in places] == [(name, 0), (name, 1), (name, 2)]
  assert [p.checksum for p in places] == [client_checksum(c, 7, s) for c, s in zip(NAMES, STATES)]
  others = state_shards.stage(folder, 8, 'token', NAMES[:1], [b'dddd'])
  assert len(os.listdir(f'{folder}/staged')) == 2
  assert _read(folder, places) == dict(zip(NAMES, STATES))
  mixed = [places[2], others[0], places[1]]
  assert _read(folder, mixed, ['é', 'a', 'b']) == {'é': b'cccc', 'a': b'dddd', 'b': b'bbbb'}


def test_what_was_written_first_stays(places, folder):
  assert state_shards.stage(folder, 7, 'token', NAMES, STATES[::-1]) == places
  assert _read(folder, places) == dict(zip(NAMES, STATES))
  # Of another round, of other clients or of another start of the run: a file of its own.
  for arguments in ((8, 'token', NAMES), (7, 'other', NAMES), (7, 'token', NAMES[::-1])):
    state_shards.stage(folder, *arguments, STATES)
  assert len(os.listdir(f'{folder}/staged')) == 4


def test_a_file_system_without_links_does(folder, monkeypatch):
  def link(*arguments):
    raise OSError('no links here')

  monkeypatch.setattr(os, 'link', link)
  places = state_shards.stage(folder, 7, 'token', NAMES, STATES)
  assert os.listdir(f'{folder}/staged') == [places[0].name]
  assert _read(folder, places) == dict(zip(NAMES, STATES))


def test_a_damaged_or_a_missing_file_is_an_error_that_says_what_to_do(places, folder):
  path = pathlib.Path(folder, 'staged', places[0].name)
  path.write_bytes(b'aaaaxbbbcccc')
  assert _read(folder, places[::2], NAMES[::2]) == {'a': b'aaaa', 'é': b'cccc'}
  with pytest.raises(StateError, match=r"the checksum of client 'b' differs.*same command again"):
    _read(folder, places)
  with pytest.raises(StateError, match='checksum'):  # Another's state, in order by itself.
    _read(folder, places[:1], ['b'])
  path.unlink()
  with pytest.raises(StateError, match='No such file'):
    _read(folder, places[:1])
