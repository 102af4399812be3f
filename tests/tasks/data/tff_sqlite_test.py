"""Clients in TFF's files: what is right is read, what is wrong is reported."""

import concurrent.futures
import os
import pickle
import sqlite3

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import task_data
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import tff_sqlite

FEATURES = {'v': tf.io.FixedLenFeature([2], tf.float32), 'k': tf.io.FixedLenFeature([], tf.int64)}


def proto(k):
  return task_data.example(v=[float(k), 0.5], k=k)


def open_train(path, features=None):
  return tff_sqlite.SqlClientData(path, 'train', features or FEATURES, lambda f: (f['v'], f['k']))


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


def prepare(features):
  return features['v'], features['k']


def test_pickled_it_is_a_path_and_another_file_is_refused(path):
  pickled = pickle.dumps(tff_sqlite.SqlClientData(path, 'train', FEATURES, prepare))
  assert len(pickled) < 2000
  clients = pickle.loads(pickled)
  np.testing.assert_array_equal(clients.load('zoé')['y'], [3])
  os.unlink(path)
  with pytest.raises(errors.DataError, match='is not on this machine: copy it there'):
    pickle.loads(pickled)
  task_data.write(path, {'train': {'a': [proto(5)]}})
  with pytest.raises(errors.DataError, match="differs from the trainer's file"):
    pickle.loads(pickled)


@pytest.mark.parametrize(
  'statement, named',
  [
    ('ALTER TABLE examples RENAME serialized_example_proto TO s', 'examples lacks serialized_ex'),
    ('DROP TABLE client_metadata', 'its table client_metadata is missing'),
    ('CREATE VIEW v AS SELECT 1', "has a view 'v'"),
    ('CREATE TRIGGER g AFTER INSERT ON examples BEGIN SELECT 1; END', "has a trigger 'g'"),
    ("UPDATE client_metadata SET num_examples = 'many'", 'client_metadata of .* cannot be read'),
    ('UPDATE client_metadata SET client_id = NULL', 'client_metadata of .* cannot be read'),
    ("UPDATE client_metadata SET client_id = CAST(x'ff' AS TEXT)", 'cannot be read .*utf-8'),
    ('UPDATE client_metadata SET num_examples = NULL', 'client .* has no examples'),
    ("UPDATE client_metadata SET num_examples = 9 WHERE client_id = 'a'", "'a' has 3 .* says 9"),
    ('DELETE FROM examples WHERE rowid = 4', "'a' has 2 examples .* says 3"),
  ],
)
def test_a_file_that_cannot_be_used_is_refused(path, statement, named):
  with sqlite3.connect(path) as con:
    con.execute(statement)
  con.close()
  with pytest.raises(errors.DataError, match=named):
    open_train(path).all_features()


def test_a_missing_split_feature_or_client_is_reported(path):
  with pytest.raises(errors.DataError, match="no split 'held'; it has test, train"):
    tff_sqlite.SqlClientData(path, 'held', FEATURES, None)
  with pytest.raises(errors.DataError, match='features k, v, w as expected'):
    open_train(path, {**FEATURES, 'w': tf.io.FixedLenFeature([], tf.int64)})
  with pytest.raises(errors.DataError, match='features k, v as expected'):
    open_train(path, {**FEATURES, 'v': tf.io.FixedLenFeature([3], tf.float32)})
  for call in (open_train(path).load, open_train(path).num_examples):
    with pytest.raises(errors.DataError, match="unknown client 'nobody'"):
      call('nobody')


def test_what_a_terminal_would_obey_is_escaped(tmp_path):
  path = task_data.write(tmp_path / 't.sqlite', {'\x1b[2Jx\u202e\n': {'a': [proto(1)]}})
  with pytest.raises(errors.DataError) as e:
    open_train(path)
  assert str(e.value).isprintable()
  assert r'it has \x1b[2Jx\u202e\n' in str(e.value)


@pytest.mark.parametrize('value', [float('nan'), -float('inf')])
def test_a_feature_that_is_not_finite_is_named_with_client_and_row(tmp_path, value):
  bad = task_data.example(v=[1.0, value], k=1)
  clients = {'a': [proto(1)] * 3, 'b': [proto(2), bad]}
  data = open_train(task_data.write(tmp_path / 'f.sqlite', {'train': clients}))
  assert len(data.load('a')['y']) == 3
  for read in (lambda: data.load('b'), data.all_features):
    with pytest.raises(
      errors.DataError, match=rf"f.sqlite: v of client 'b' in 'train', row 1, is {value}; .*finite"
    ):
      read()


def test_a_value_out_of_its_range_is_named_before_it_is_narrowed(tmp_path):
  clients = {'a': [proto(1)] * 3, 'b': [proto(9), proto(2**32 + 3), proto(0)]}
  path = task_data.write(tmp_path / 'r.sqlite', {'train': clients})

  def prepare(features):
    return features['v'], features['k'].astype(np.int32)

  data = tff_sqlite.SqlClientData(path, 'train', FEATURES, prepare, {'k': (0, 9)})
  for read in (lambda: data.load('b'), data.all_features):
    with pytest.raises(
      errors.DataError, match=r"k of client 'b' in 'train', row 1, is 4294967299; .* from 0 to 9"
    ):
      read()


def test_preprocessing_that_loses_examples_is_an_error(path):
  data = tff_sqlite.SqlClientData(path, 'train', FEATURES, lambda f: (f['v'], f['k'][1:]))
  with pytest.raises(errors.DataError, match=r"d.sqlite: client 'a': x has shape"):
    data.load('a')
