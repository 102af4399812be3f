"""FLamby's tasks: small files of their form, and the published counts where the data are there."""

import os
import typing

import numpy as np
import pytest
import tensorflow as tf

import oracle
import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive_tasks import flamby

real = task_data.needs('flamby')


def write_heart(folder):
  """Ten patients in each hospital, of whom one has no pressure and three lack what is dropped."""
  rng = np.random.default_rng(0)
  tables = {}
  for name in flamby.HOSPITALS:
    table = rng.normal(50, 9, [10, 14]).round(1)
    table[:, 2] = np.arange(10) % 4 + 1
    table[:, 6] = np.arange(10) % 2
    table[:, 13] = np.arange(10) % 2 * 3
    rows = [list(map(str, row)) for row in table]
    rows[4][3] = '?'
    for row in rows[:3]:
      row[11] = '?'
    (folder / f'processed.{name}.data').write_text('\n'.join(map(','.join, rows)))
    tables[name] = np.delete(table, 4, axis=0)
  return tables


def test_heart_disease_is_standardised_by_each_hospitals_own_training_part(tmp_path):
  tables = write_heart(tmp_path)
  task = tasks.load('fed_heart', data_dir=str(tmp_path))
  assert task.train.client_ids == list(flamby.HOSPITALS)
  assert task.build_model(0).num_parameters == 8 + 3 + 1 + 1  # As many as there are levels.
  for name, table in tables.items():
    numbers = table[:, [0, 1, 3, 4, 5, 7, 8, 9]]
    levels = [table[:, [2]] == [2, 3, 4], table[:, [6]] == [1]]
    x = np.concatenate([numbers, *levels], 1)
    train = task.train.load(name)
    test = task.test_clients.load(name)
    assert (train['y'].shape, test['y'].shape) == ((5,), (4,))  # 66 % of nine, rounded down.
    rows = [1, 2, 4, 5, 6, 0, 3, 7, 8]  # Of FLamby's seed, each part in the file's order.
    np.testing.assert_array_equal([*train['y'], *test['y']], table[rows, 13] > 0)
    expected = (x[rows] - x[rows[:5]].mean(0)) / (x[rows[:5]].std(0, ddof=1) + 1e-9)
    np.testing.assert_allclose([*train['x'], *test['x']], expected, rtol=1e-5, atol=1e-5)
  pooled = tasks.load('fed_heart', data_dir=str(tmp_path), standardized='pooled')
  every = pooled.train.load_all()['x']
  np.testing.assert_allclose(every.mean(0), 0, atol=1e-6)
  np.testing.assert_allclose(every.std(0, ddof=1), 1, rtol=1e-5)
  np.testing.assert_array_equal(pooled.validation['x'], task.validation['x'])
  np.testing.assert_array_equal(pooled.validation['x'], pooled.test_clients.load_all()['x'])


def write_brca(folder):
  rows = [f'p{i},{i},{i % 3},{i % 2}.0,{100 + i}.5' for i in range(9)]
  (folder / 'brca.csv').write_text('\n'.join(['pid,age,stage,E,T', *rows]))
  folds = ['train_0', 'train_0', 'test_0', 'train_1', 'test_1', 'test_1', 'train_1', 'train_0']
  lines = [f'p{i},{fold[:-2]},{fold}' for i, fold in enumerate(folds)]
  (folder / 'train_test_split.csv').write_text('\n'.join(['pid,fold,fold2', *lines]))


def test_regions_have_the_patients_of_their_folds_and_others_are_left_out(tmp_path):
  (tmp_path / 'flamby').mkdir()  # A folder for all tasks may have it.
  write_brca(tmp_path / 'flamby')
  task = tasks.load('fed_tcga_brca', data_dir=str(tmp_path))
  assert task.train.client_ids == ['0', '1']
  clients = [task.train.load('0'), task.train.load('1'), *map(task.test_clients.load, '01')]
  assert [list(part['x'][:, 0]) for part in clients] == [[0, 1, 7], [3, 6], [2], [4, 5]]
  np.testing.assert_array_equal(clients[0]['y'], [[0, 100.5], [1, 101.5], [1, 107.5]])
  assert len(task.validation['y']) == 3
  model = task.build_model(0)
  assert (task.metric, model.metric_names[1], model.num_parameters) == (*['concordance'] * 2, 3)


class Damage(typing.NamedTuple):
  """What replaces a text of a file, or all of it; the file goes if there is nothing new."""

  file: str
  message: str
  old: str | None = None
  new: str | None = None


@pytest.mark.parametrize(
  'damage',
  [
    Damage(
      file='processed.va.data',
      old='',
      message='processed.va.data is neither in data_dir=.* nor in flam',
    ),
    Damage(
      file='processed.va.data',
      old='?',
      new='x',
      message='processed.va.data cannot be read .*could not convert string',
    ),
    Damage(
      file='processed.va.data', new='1,' * 12 + '0', message='processed.va.data cannot be read'
    ),
    Damage(file='brca.csv', old='E,T', new='E,U', message="brca.csv or .* cannot be read .*'T'"),
    Damage(
      file='brca.csv', old='101.5', new='late', message="could not convert string to float: 'late'"
    ),
    Damage(file='brca.csv', old='101.5', new='', message='and T a number'),
    Damage(file='train_test_split.csv', old='fold2', new='part', message="'fold2'"),
    Damage(
      file='train_test_split.csv',
      old='test_0',
      new='other',
      message='fold2 must be train_REGION or test_REGION',
    ),
    Damage(
      file='train_test_split.csv',
      new='pid,fold2\np0,3',
      message='fold2 must be train_REGION or test_REGION',
    ),
    Damage(
      file='train_test_split.csv', old='test_', new='train_', message='each for some patients'
    ),
    Damage(file='brca.csv', old=',1.0,', new=',2.0,', message='E must be 0 or 1'),
  ],
)
def test_files_of_another_form_are_refused(tmp_path, damage):
  write_heart(tmp_path)
  write_brca(tmp_path)
  path = tmp_path / damage.file
  if damage.new is None:
    path.unlink()
  elif damage.old is None:
    path.write_text(damage.new)
  else:
    path.write_text(path.read_text().replace(damage.old, damage.new))
  name = 'fed_heart' if 'processed' in damage.file else 'fed_tcga_brca'
  with pytest.raises(tasks.DataError, match=damage.message):
    tasks.load(name, data_dir=str(tmp_path))


def test_heart_disease_is_a_logistic_regression_that_starts_as_pytorchs_linear():
  x = np.float32([[-1], [0.5], [2], [0]])
  y = np.float32([0, 1, 0, 1])
  weights = tf.ones([1, 1]), tf.zeros(1)
  _, means = flamby.build_heart_model(0, 1).loss_and_metrics(weights, x, y)
  wrong = [-1, -0.5, 2, 0]  # The logits of the class that it is not.
  np.testing.assert_allclose(means, [np.mean(np.log1p(np.exp(wrong))), 1, 0.5, 1], rtol=1e-6)
  for build, columns in ((flamby.build_heart_model, 13), (flamby.build_cox_model, 39)):
    draws = [oracle.pack(build(seed).initial_weights[0]) for seed in range(40)]
    assert build(0).num_parameters == columns + 1
    limit = columns**-0.5
    assert 0.95 * limit < np.abs(draws).max() <= limit
    np.testing.assert_allclose(np.var(draws), limit**2 / 3, rtol=0.1)


@real
def test_the_real_data_have_flambys_numbers_of_patients():
  folder = os.path.join(task_data.DATA_DIR, 'flamby')
  for name, train, test in (
    ('fed_heart', [199, 172, 30, 85], [104, 89, 16, 45]),
    ('fed_tcga_brca', [248, 156, 164, 129, 129, 40], [63, 40, 42, 33, 33, 11]),
  ):
    task = tasks.load(name, data_dir=folder)
    assert [task.train.num_examples(c) for c in task.train.client_ids] == train
    assert [task.test_clients.num_examples(c) for c in task.test_clients.client_ids] == test
    assert len(task.validation['y']) == sum(test)
