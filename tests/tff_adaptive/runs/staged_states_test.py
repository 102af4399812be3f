"""Staged states: what was written first is read, or an error says what to do."""

import os

import pytest

from tff_adaptive.runs import staged_states
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_database import client_checksum

IDS = ['a', 'b', 'é']
STATES = [b'aaaa', b'bbbb', b'cccc']


def _read(folder, places, ids=IDS):
  return dict(staged_states.read(str(folder), 4, list(zip(ids, places))))


@pytest.fixture
def places(tmp_path):
  return staged_states.write(str(tmp_path), 7, 'token', IDS, STATES)


def test_a_subround_is_one_file_from_which_any_state_is_read(places, tmp_path):
  (name,) = os.listdir(tmp_path)
  assert [(p.name, p.row) for p in places] == [(name, 0), (name, 1), (name, 2)]
  assert [p.checksum for p in places] == [client_checksum(c, 7, s) for c, s in zip(IDS, STATES)]
  others = staged_states.write(str(tmp_path), 8, 'token', IDS[:1], [b'dddd'])
  assert len(os.listdir(tmp_path)) == 2
  assert _read(tmp_path, places) == dict(zip(IDS, STATES))
  mixed = [places[2], others[0], places[1]]
  assert _read(tmp_path, mixed, ['é', 'a', 'b']) == {'é': b'cccc', 'a': b'dddd', 'b': b'bbbb'}


def test_what_was_written_first_stays(places, tmp_path):
  assert staged_states.write(str(tmp_path), 7, 'token', IDS, STATES[::-1]) == places
  assert _read(tmp_path, places) == dict(zip(IDS, STATES))
  # Of another round, of other clients or of another start of the run: a file of its own.
  for arguments in ((8, 'token', IDS), (7, 'other', IDS), (7, 'token', IDS[::-1])):
    staged_states.write(str(tmp_path), *arguments, STATES)
  assert len(os.listdir(tmp_path)) == 4


def test_a_file_system_without_links_does(tmp_path, monkeypatch):
  def link(*arguments):
    raise OSError('no links here')

  monkeypatch.setattr(os, 'link', link)
  places = staged_states.write(str(tmp_path), 7, 'token', IDS, STATES)
  assert os.listdir(tmp_path) == [places[0].name]
  assert _read(tmp_path, places) == dict(zip(IDS, STATES))


def test_a_damaged_or_a_missing_file_is_an_error_that_says_what_to_do(places, tmp_path):
  path = tmp_path / places[0].name
  path.write_bytes(b'aaaaxbbbcccc')
  assert _read(tmp_path, places[::2], IDS[::2]) == {'a': b'aaaa', 'é': b'cccc'}
  with pytest.raises(StateError, match=r"the checksum of client 'b' differs.*same command again"):
    _read(tmp_path, places)
  with pytest.raises(StateError, match='checksum'):  # Another's state, in order by itself.
    _read(tmp_path, places[:1], ['b'])
  path.unlink()
  with pytest.raises(StateError, match='No such file'):
    _read(tmp_path, places[:1])


def test_cleared_is_empty(places, tmp_path):
  staged_states.clear(str(tmp_path))
  assert not os.listdir(tmp_path)
