"""Reading TFF's files: what is right is read, what is wrong is said."""

import concurrent.futures
import os
import pathlib
import sqlite3

import numpy as np
import pytest
import tensorflow as tf

from tasks import errors, sources
from tests.tasks import data

FEATURES = {'v': tf.io.FixedLenFeature([2], tf.float32), 'k': tf.io.FixedLenFeature([], tf.int64)}


def proto(k):
  return data.example(v=[float(k), 0.5], k=k)


def open_train(path, features=None):
  return sources.SqlClientData(path, 'train', features or FEATURES, lambda f: (f['v'], f['k']))


@pytest.fixture
def path(tmp_path):
  train = {'o\'brien "x"; --': [proto(1), proto(2)], 'zoé': [proto(3)], 'a': [proto(4)] * 3}
  return data.write(tmp_path / 'd.sqlite', {'train': train, 'test': {'a': [proto(9)]}})


def test_clients_are_read_whole_and_by_split(path):
  clients = open_train(path)
  assert list(clients.client_ids) == ['a', 'o\'brien "x"; --', 'zoé']
  assert [clients.num_examples(c) for c in clients.client_ids] == [3, 2, 1]
  loaded = clients.load('o\'brien "x"; --')
  np.testing.assert_array_equal(loaded['y'], [1, 2])
  np.testing.assert_array_equal(loaded['x'], [[1, 0.5], [2, 0.5]])
  features, owner = clients.all_features()
  np.testing.assert_array_equal(features['k'], [4, 4, 4, 1, 2, 3])
  np.testing.assert_array_equal(owner, [0, 0, 0, 1, 1, 2])


def test_threads_may_share_a_source(path):
  clients = open_train(path)
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    sums = list(pool.map(lambda _: clients.load('a')['y'].sum(), range(20)))
  assert sums == [12] * 20


def test_a_folder_that_cannot_be_written_is_enough(path):
  before = set(os.listdir(os.path.dirname(path)))
  open_train(path).load('a')
  assert set(os.listdir(os.path.dirname(path))) == before


@pytest.mark.parametrize('keep', [0.97, 0.5, 0.01])
def test_a_partial_file_is_refused(path, keep):
  with sqlite3.connect(path) as con:  # Some pages, so that a cut leaves a header.
    con.executemany('INSERT INTO examples VALUES (?, ?, ?)', [('train', 'b', proto(1) * 50)] * 200)
    con.execute("INSERT INTO client_metadata VALUES ('b', 'train', 200)")
  con.close()
  size = os.path.getsize(path)
  os.truncate(path, int(size * keep))
  with pytest.raises(errors.DataError, match=rf'incomplete: .* of {size}; delete it'):
    open_train(path)


def test_what_is_not_sqlite_is_refused(tmp_path):
  for name, content in (('a', b''), ('b', b'x' * 5000)):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.DataError, match='not a SQLite file'):
      open_train(str(tmp_path / name))
  with pytest.raises(errors.DataError, match=r'cannot read .*No such file'):
    open_train(str(tmp_path / 'none.sqlite'))


def test_a_damaged_page_is_told(path):
  with open(path, 'r+b') as f:
    f.seek(4096 + 8)
    f.write(b'\xff' * 3000)

  def read_all():
    clients = open_train(path)
    return [clients.load(c) for c in clients.client_ids]

  with pytest.raises(errors.DataError, match=r'cannot be read|does not have|has 0 examples'):
    read_all()


def test_a_wrong_schema_is_told(tmp_path):
  path = str(tmp_path / 's.sqlite')
  with sqlite3.connect(path) as con:
    con.execute('CREATE TABLE examples (split_name TEXT, client_id TEXT)')
  con.close()
  with pytest.raises(errors.DataError, match='table examples lacks serialized_example_proto'):
    open_train(path)
  with sqlite3.connect(path) as con:
    con.execute('ALTER TABLE examples ADD COLUMN serialized_example_proto BLOB')
  con.close()
  with pytest.raises(errors.DataError, match='table client_metadata is missing'):
    open_train(path)


def test_a_missing_split_feature_or_client_is_told(path):
  with pytest.raises(errors.DataError, match="no split 'held'; it has test, train"):
    sources.SqlClientData(path, 'held', FEATURES, None)
  with pytest.raises(errors.DataError, match='features k, v, w as expected'):
    open_train(path, {**FEATURES, 'w': tf.io.FixedLenFeature([], tf.int64)})
  with pytest.raises(errors.DataError, match='features k, v as expected'):
    open_train(path, {**FEATURES, 'v': tf.io.FixedLenFeature([3], tf.float32)})
  for call in (open_train(path).load, open_train(path).num_examples):
    with pytest.raises(errors.DataError, match="unknown client 'nobody'"):
      call('nobody')


def test_an_empty_client_is_named(tmp_path):
  path = data.write(tmp_path / 'e.sqlite', {'train': {'a': [proto(1)], "b'": []}})
  with pytest.raises(errors.DataError, match='client "b\'" has no examples'):
    open_train(path)
  path = data.write(tmp_path / 'n.sqlite', {'train': {'a': [proto(1)]}})
  with sqlite3.connect(path) as con:
    con.execute('UPDATE client_metadata SET num_examples = NULL')
  with pytest.raises(errors.DataError, match="client 'a' has no examples"):
    open_train(path)


def test_metadata_that_disagree_are_told(tmp_path):
  path = data.write(tmp_path / 'm.sqlite', {'train': {'a': [proto(1)]}}, {('train', 'a'): 2})
  with pytest.raises(errors.DataError, match=r"'a' has 1 examples .* says 2"):
    open_train(path)


def test_an_id_that_is_not_text_is_refused(tmp_path):
  path = data.write(tmp_path / 'u.sqlite', {'train': {b'\xff\xfe': [proto(1)]}})
  with pytest.raises(errors.DataError, match=r"name b'\\xff\\xfe' is not UTF-8"):
    open_train(path)


def test_a_download_is_kept_only_when_whole(path, tmp_path, monkeypatch):
  home = tmp_path / 'home'
  home.mkdir()
  monkeypatch.setenv('HOME', str(home))
  whole = pathlib.Path(path).read_bytes()

  def fetch(content):
    def download(folder):
      with open(os.path.join(folder, 'd.sqlite'), 'wb') as f:
        f.write(content)

    return download

  def broken(folder):
    fetch(whole[:5000])(folder)
    raise OSError('connection reset')

  with pytest.raises(errors.DataError, match=r'download of d.sqlite failed .connection reset'):
    sources.find_tff_file('d.sqlite', None, broken)
  with pytest.raises(errors.DataError, match=r'download of d.sqlite failed .*incomplete'):
    sources.find_tff_file('d.sqlite', None, fetch(whole[:-1]))
  assert os.listdir(home / '.tff') == []
  found = sources.find_tff_file('d.sqlite', None, fetch(whole))
  assert len(open_train(found)) == 3
  assert sources.find_tff_file('d.sqlite', None, broken) == found  # From the cache.


def test_a_folder_without_the_file_is_told(tmp_path):
  with pytest.raises(errors.DataError, match=r'there is no d.sqlite in'):
    sources.find_tff_file('d.sqlite', str(tmp_path), None)
