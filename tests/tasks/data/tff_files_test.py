"""TFF's files are used only when they are whole."""

import os
import sqlite3

import pytest
import tensorflow_federated as tff

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import tff_files


def read(path):
  with open(path, 'rb') as f:
    return f.read()


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'd.sqlite'
  with sqlite3.connect(path) as con:
    con.execute('CREATE TABLE examples (content BLOB)')
    con.executemany('INSERT INTO examples VALUES (?)', [(bytes(500),)] * 200)
  con.close()
  return str(path)


@pytest.mark.parametrize('keep', [0.97, 0.5, 0.01])
def test_a_partial_file_is_refused(path, keep):
  size = os.path.getsize(path)
  os.truncate(path, int(size * keep))
  with pytest.raises(errors.DataError, match=rf'incomplete: .* of {size}; delete it'):
    tff_files.check_complete(path)


def test_what_is_not_sqlite_is_refused(tmp_path):
  for name, content in (('a', b''), ('b', b'x' * 5000)):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.DataError, match='not a SQLite file'):
      tff_files.check_complete(str(tmp_path / name))
  with pytest.raises(errors.DataError, match='there is no file'):
    tff_files.check_complete(str(tmp_path / 'none.sqlite'))


def test_a_download_is_kept_only_when_whole(path, tmp_path, monkeypatch):
  home = tmp_path / 'home'
  home.mkdir()
  monkeypatch.setenv('HOME', str(home))
  whole = read(path)

  def fetch(content, error=None):
    def download(cache_dir):
      with open(os.path.join(cache_dir, 'shakespeare.sqlite'), 'wb') as f:
        f.write(content)
      if error:
        raise error

    monkeypatch.setattr(tff.simulation.datasets.shakespeare, 'load_data', download)
    return tff_files.find_tff_file('shakespeare.sqlite', None)

  with pytest.raises(errors.DataError, match=r'download of shakespeare.* .*connection reset'):
    fetch(whole[:5000], OSError('connection reset'))
  with pytest.raises(errors.DataError, match='is incomplete'):
    fetch(whole[:-1])
  assert os.listdir(home / '.tff') == []
  found = fetch(whole)
  tff_files.check_complete(found)
  assert fetch(b'', OSError('not called')) == found  # From the cache.


def test_a_folder_without_the_file_is_reported(tmp_path):
  with pytest.raises(errors.DataError, match=r'there is no d.sqlite in'):
    tff_files.find_tff_file('d.sqlite', str(tmp_path))


def test_of_a_large_file_blocks_are_compared(tmp_path, monkeypatch):
  monkeypatch.setattr(tff_files, '_BLOCK_BYTES', 4)
  monkeypatch.setattr(tff_files, '_BLOCKS', 3)
  path, whole = tmp_path / 'data', bytes(range(200))
  path.write_bytes(whole)
  expected = tff_files.fingerprint(str(path))
  for at, is_compared in ((0, True), (3, True), (66, True), (135, True), (50, False)):
    path.write_bytes(whole[:at] + b'\xff' + whole[at + 1 :])
    os.utime(path, (at, at + 1))
    assert (tff_files.fingerprint(str(path)) != expected) == is_compared
