"""A file is opened again where it is the same, and refused where it is not."""

import pickle

import pytest

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import same_file


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'data'
  path.write_bytes(bytes(range(200)))
  return path


def test_the_same_file_is_opened_again_and_a_relative_path_is_made_whole(path, monkeypatch):
  monkeypatch.chdir(path.parent)
  assert pickle.loads(pickle.dumps(same_file.SameFile('data'))).path == str(path)


def test_another_file_of_the_same_size_or_none_is_refused(path):
  pickled = pickle.dumps(same_file.SameFile(str(path)))
  path.write_bytes(bytes(range(1, 201)))
  with pytest.raises(errors.DataError, match=r"data differs from the trainer's file of that name"):
    pickle.loads(pickled)
  path.unlink()
  with pytest.raises(errors.DataError, match='is not on this machine: copy it there'):
    pickle.loads(pickled)


def test_of_a_large_file_blocks_from_first_to_last_are_compared(path, monkeypatch):
  monkeypatch.setattr(same_file, '_WHOLE_BYTES', 100)
  monkeypatch.setattr(same_file, '_BLOCK_BYTES', 4)
  monkeypatch.setattr(same_file, '_BLOCKS', 3)
  pickled = pickle.dumps(same_file.SameFile(str(path)))
  whole = bytes(range(200))
  for at in (0, 3, 98, 101, 196, 199):
    path.write_bytes(whole[:at] + b'\xff' + whole[at + 1 :])
    with pytest.raises(errors.DataError, match='differs'):
      pickle.loads(pickled)
  path.write_bytes(whole[:50] + b'\xff' + whole[51:])  # Between blocks.
  assert pickle.loads(pickled).path == str(path)
