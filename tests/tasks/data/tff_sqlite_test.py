"""Clients in TFF's files: what is right is read, what is wrong is reported."""

import concurrent.futures
import os
import pathlib
import pickle
import sqlite3

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import task_data
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import tff_sqlite

FEATURES = {'v': tf.io.FixedLenFeature([2], tf.float32), 'k': tf.io.FixedLenFeature([], tf.int64)}


def proto(k):
  return task_data.example(v=[float(k), 0.5], k=k)


def prepare(features):
  return features['v'], features['k']


def open_train(path, features=FEATURES, ranges=None):
  return tff_sqlite.SqlClientData(path, 'train', features, prepare, ranges)


@pytest.fixture
def path(tmp_path):
  train = {'o\'brien "x"; --': [proto(1), proto(2)], 'zoé': [proto(3)], 'a': [proto(4)] * 3}
  return task_data.write(tmp_path / 'd.sqlite', {'train': train, 'test': {'a': [proto(9)]}})


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


def test_threads_may_share_a_source_and_its_folder_is_left_alone(path):
  before = os.listdir(os.path.dirname(path))
  clients = open_train(path)
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    sums = list(pool.map(lambda _: clients.load('a')['y'].sum(), range(20)))
  assert sums == [12] * 20
  assert os.listdir(os.path.dirname(path)) == before
  for pragma, value in (('trusted_schema', 0), ('cell_size_check', 1)):
    assert clients._query(f'PRAGMA {pragma}') == [(value,)]


def test_clients_that_were_loaded_last_are_not_parsed_again(path, monkeypatch):
  num_bytes = tff_sqlite._num_bytes(open_train(path).load('a'))
  monkeypatch.setattr(tff_sqlite, '_REMEMBERED_BYTES', num_bytes)
  clients = open_train(path)
  first = clients.load('a')
  with monkeypatch.context() as patched:
    patched.setattr(clients, '_parse', None)
    assert clients.load('a') is first
  with pytest.raises(ValueError, match='read-only'):
    first['x'][0] = 0
  assert clients.load('zoé')['y'] == [3]
  assert clients.load('a') is not first  # The limit is one client of this size.
  np.testing.assert_array_equal(clients.load('a')['y'], first['y'])


def test_pickled_it_is_a_path_and_another_file_is_refused(path):
  pickled = pickle.dumps(open_train(path))
  assert len(pickled) < 2000
  clients = pickle.loads(pickled)
  np.testing.assert_array_equal(clients.load('zoé')['y'], [3])
  os.unlink(path)
  for write in (lambda: None, lambda: task_data.write(path, {'train': {'a': [proto(5)]}})):
    write()
    with pytest.raises(errors.DataError, match=r'differs .* or is not on this machine: copy'):
      pickle.loads(pickled)


@pytest.mark.parametrize(
  'statement, named',
  [
    ('ALTER TABLE examples RENAME serialized_example_proto TO s', 'no such column: serialized_e'),
    (
      'ALTER TABLE examples RENAME TO e; CREATE VIEW examples AS SELECT * FROM e',
      'it has no tables examples and client_metadata',
    ),
    ("UPDATE client_metadata SET num_examples = 'many'", 'a client has no examples'),
    ('UPDATE client_metadata SET client_id = NULL', 'client_metadata of .* cannot be read'),
    ("UPDATE client_metadata SET num_examples = 9 WHERE client_id = 'a'", "'a' has 3 .* says 9"),
    ('DELETE FROM examples WHERE rowid = 4', "'a' has 2 examples .* says 3"),
  ],
)
def test_a_file_that_cannot_be_used_is_refused(path, statement, named):
  with sqlite3.connect(path) as con:
    con.executescript(statement)
  con.close()
  with pytest.raises(errors.DataError, match=named):
    open_train(path).all_features()


def test_a_missing_split_feature_or_client_is_reported(path):
  with pytest.raises(errors.DataError, match="no split 'held'; it has test, train"):
    tff_sqlite.SqlClientData(path, 'held', FEATURES, None)
  longer = tf.io.FixedLenFeature([3], tf.float32)
  for change in ({'w': FEATURES['k']}, {'v': longer}):
    named = ', '.join(sorted({**FEATURES, **change}))
    with pytest.raises(errors.DataError, match=f"client 'a' with {named} cannot be read"):
      open_train(path, {**FEATURES, **change})
  for call in (open_train(path).load, open_train(path).num_examples):
    with pytest.raises(errors.DataError, match="unknown client 'nobody'"):
      call('nobody')


@pytest.mark.parametrize(
  'bad, named',
  [
    (task_data.example(v=[1.0, float('nan')], k=1), 'v of {}, is nan; it must be finite'),
    (task_data.example(v=[1.0, -float('inf')], k=1), 'v of {}, is -inf; it must be finite'),
    # What int32 would cut down to a value that is allowed.
    (proto(2**32 + 3), 'k of {}, is 4294967299; it must be from 0 to 9'),
    (proto(-1), 'k of {}, is -1; it must be from 0 to 9'),
  ],
  # The bytes of a message differ from process to process.
  ids=['not a number', 'infinite', 'too large for int32', 'negative'],
)
def test_a_value_that_cannot_be_is_named_with_client_and_row(tmp_path, bad, named):
  clients = {'a': [proto(0)] * 3, 'b': [proto(9), bad, proto(0)]}
  path = task_data.write(tmp_path / 'r.sqlite', {'train': clients})
  data = open_train(path, ranges={'k': (0, 9)})
  assert len(data.load('a')['y']) == 3
  for read in (lambda: data.load('b'), data.all_features):
    with pytest.raises(errors.DataError) as raised:
      read()
    assert str(raised.value) == f'{path}: ' + named.format("client 'b' in 'train', row 1")


def test_a_file_that_is_not_whole_is_refused(path):
  path = pathlib.Path(path)
  whole = path.read_bytes()
  size = len(whole)
  large = whole[:16] + b'\0\1' + whole[18:28] + b'\0\0\0\2'  # 1 means pages of 65,536 bytes.
  for content, words in (
    (whole[:-1], rf'incomplete: {size - 1} bytes of {size}\); delete it'),
    (large + bytes(2 * 65536 - 33), 'incomplete: 131071 bytes of 131072'),
    (b'', 'cannot be read'),
    (b'x' * size, 'not a SQLite file'),
  ):
    path.write_bytes(content)
    with pytest.raises(errors.DataError, match=words):
      tff_sqlite.check_complete(str(path))


def test_a_download_is_kept_only_when_whole(path, tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  whole = pathlib.Path(path).read_bytes()

  def fetch(content, error=None):
    def download(cache_dir):
      with open(os.path.join(cache_dir, 'shakespeare.sqlite'), 'wb') as f:
        f.write(content)
      if error:
        raise error

    monkeypatch.setattr(tff.simulation.datasets.shakespeare, 'load_data', download)
    return tff_sqlite.find_tff_file('shakespeare.sqlite', None)

  with pytest.raises(errors.DataError, match=r'download of shakespeare.* .*connection reset'):
    fetch(whole[:5000], OSError('connection reset'))
  with pytest.raises(errors.DataError, match='is incomplete'):
    fetch(whole[:-1])
  assert os.listdir(tmp_path / '.tff') == []
  path_of_data = fetch(whole)
  tff_sqlite.check_complete(path_of_data)
  assert fetch(b'', OSError('not called')) == path_of_data  # From the cache.
  with pytest.raises(errors.DataError, match=r'there is no a.sqlite in'):
    tff_sqlite.find_tff_file('a.sqlite', str(tmp_path))


def test_of_a_large_file_blocks_are_compared(tmp_path, monkeypatch):
  monkeypatch.setattr(tff_sqlite, '_BLOCK_BYTES', 4)
  monkeypatch.setattr(tff_sqlite, '_BLOCKS', 3)
  path = tmp_path / 'data'
  whole = bytes(range(200))
  path.write_bytes(whole)
  expected = tff_sqlite.fingerprint(str(path))
  for at, is_compared in ((0, True), (3, True), (66, True), (135, True), (50, False)):
    path.write_bytes(whole[:at] + b'\xff' + whole[at + 1 :])
    os.utime(path, (at, at + 1))
    assert (tff_sqlite.fingerprint(str(path)) != expected) == is_compared


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ("'a', NULL, 3", "has no split 'held'; it has NULL, test, train"),
    ("'a', 7, 3", "has no split 'held'; it has '7', test, train|it has 7, test, train"),
    ("NULL, 'held', 3", 'client_id or num_examples is NULL'),
    ("'a', 'held', NULL", 'client_id or num_examples is NULL'),
  ],
)
def test_null_in_the_table_of_clients_is_reported(path, values, message):
  with sqlite3.connect(path) as connection:
    columns = 'client_id, split_name, num_examples'
    connection.execute(f'INSERT INTO client_metadata ({columns}) VALUES ({values})')
  connection.close()
  with pytest.raises(errors.DataError, match=message):
    tff_sqlite.SqlClientData(path, 'held', FEATURES, None)
