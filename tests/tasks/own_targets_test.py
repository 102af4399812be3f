"""What is to be predicted: classes, counts, several labels or several numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from sklearn import metrics as sk

import tff_adaptive_tasks as tasks
from tff_adaptive import models

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4)).astype(np.float32)
CLIENTS = np.repeat([f'c{i}' for i in range(8)], 10)
LABELS = (X[:, :3] + RNG.normal(size=(80, 3)) > 0).astype(int)
COUNTS = RNG.poisson(30, 80)
TABLE = pd.DataFrame(
  {
    'where': CLIENTS,
    'dose': X[:, 0],
    'late': LABELS[:, 0],
    'poor': LABELS[:, 1],
    'days': X[:, 1],
    'visits': COUNTS,
  }
)


def scores(shape, outputs):
  return tf.keras.Sequential([tf.keras.layers.Dense(outputs, input_shape=shape)])


def probabilities(shape, outputs):
  return tf.keras.Sequential([tf.keras.layers.Dense(outputs, 'sigmoid', input_shape=shape)])


def evaluated(task):
  """Returns the model's own metrics on the validation data, and its outputs, in NumPy."""
  model = task.build_model(3)
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  outputs = model.forward(weights, tf.constant(task.validation['x']), False, None)
  return models.build_evaluation(model)(weights, task.validation), np.asarray(outputs, np.float64)


@pytest.mark.sample(6)
@pytest.mark.parametrize('dtype', [int, float, bool])
@pytest.mark.parametrize('model', ['logistic_regression', 'mlp', scores, probabilities])
def test_named_zeros_and_ones_are_labels_that_do_not_exclude_each_other(dtype, model):
  names = ['a', 'b', 'c']
  task = tasks.from_arrays(X, LABELS.astype(dtype), CLIENTS, targets=names, model=model)
  assert task.preparation.targets == ('a', 'b', 'c')
  assert task.preparation.classes is None
  assert not task.preparation.is_numbers
  assert task.metric == 'accuracy'
  measured, outputs = evaluated(task)
  y = task.validation['y']
  assert y.shape[1:] == outputs.shape[1:] == (3,)
  if model is probabilities:
    p = outputs
  else:
    p = 1 / (1 + np.exp(-outputs))
  losses = -(y * np.log(p) + (1 - y) * np.log(1 - p))
  np.testing.assert_allclose(measured['loss'], losses.mean(), rtol=1e-5)
  np.testing.assert_allclose(measured['accuracy'], ((p > 0.5) == y).mean(), rtol=1e-6)
  known = (p > 0.5).astype(int)
  wanted = [sk.f1_score(y[:, i], known[:, i]) for i in range(3)]
  assert measured['f1_macro'] == pytest.approx(np.mean(wanted))
  assert measured['auc_roc_macro'] == pytest.approx(
    sk.roc_auc_score(y, outputs, average='macro'), abs=0.02
  )
  np.testing.assert_array_equal(task.preparation.labels(outputs.astype('f')), known)


def test_several_numbers_have_the_mean_of_their_errors():
  y = X[:, :2] * [1, 100]
  for options in ({}, {'targets': ('a', 'b')}, {'model': scores}):
    task = tasks.from_arrays(X, y, CLIENTS, **options)
    assert task.preparation.is_numbers
    measured, outputs = evaluated(task)
    errors = outputs - task.validation['y']
    np.testing.assert_allclose(measured['loss'], (errors**2).mean(), rtol=1e-5)
    np.testing.assert_allclose(measured['mean_absolute_error'], abs(errors).mean(), rtol=1e-5)
    np.testing.assert_array_equal(task.preparation.labels(outputs), outputs)


def test_columns_of_zeros_and_ones_are_labels():
  task = tasks.from_frame(TABLE, 'where', ['late', 'poor'])
  assert [column.name for column in task.preparation.columns] == ['dose', 'days', 'visits']
  first = task.train.client_ids[0]
  expected = TABLE[TABLE['where'] == first][['late', 'poor']].to_numpy()
  np.testing.assert_array_equal(task.train.load(first)['y'], expected)
  assert task.preparation.threshold == 0


def test_columns_of_other_numbers_are_numbers():
  task = tasks.from_frame(TABLE, 'where', ('visits', 'days'))
  assert task.preparation.is_numbers
  assert task.train.load_all()['y'].dtype == np.float32


def test_one_column_of_zeros_and_ones_is_of_two_classes():
  same = tasks.from_frame(TABLE, 'where', ['late'])
  assert same.preparation.classes == (0, 1)
  assert same.preparation.targets == ('late',)


def test_zeros_and_ones_are_numbers_on_request():
  as_numbers = tasks.from_frame(TABLE, 'where', ['late', 'poor'], kind='numbers')
  assert as_numbers.preparation.is_numbers


def test_counts_are_told_from_classes():
  with pytest.warns(
    UserWarning, match=r'visits.* has \d+ different whole numbers, from \d+ to \d+'
  ):
    task = tasks.from_frame(TABLE, 'where', 'visits', features=['dose'])
  assert len(task.preparation.classes) == len(set(COUNTS))
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    as_classes = tasks.from_frame(TABLE, 'where', 'visits', features=['dose'], kind='classes')
    numbers = tasks.from_frame(TABLE, 'where', 'visits', features=['dose'], kind='numbers')
    tasks.from_frame(TABLE, 'where', 'late')  # Two whole numbers are classes.
  assert as_classes.preparation.classes == task.preparation.classes
  assert numbers.preparation.classes is None
  assert numbers.preparation.is_numbers
  first = numbers.train.client_ids[0]
  np.testing.assert_array_equal(numbers.train.load(first)['y'], COUNTS[first == CLIENTS])
  measured, outputs = evaluated(numbers)
  errors = outputs - numbers.validation['y']
  np.testing.assert_allclose(measured['loss'], (errors**2).mean(), rtol=1e-5)


def test_whole_decimals_are_classes_if_they_are_said_to_be():
  task = tasks.from_arrays(X, LABELS[:, 0] * 2.0, CLIENTS, kind='classes')
  assert task.preparation.classes == (0, 2)
  held = tasks.from_arrays(
    X, LABELS[:, 0] * 2.0, CLIENTS, kind='classes', validation=(X[:3], [2.0, 0.0, 2.0])
  )
  assert held.validation['y'].tolist() == [1, 0, 1]


def test_labels_of_a_model_of_ones_own_need_a_threshold():
  def build(seed):
    del seed
    return models.Model(
      initial_weights=[np.zeros([4, 3], np.float32)],
      forward=lambda weights, x, training, seed: x @ weights[0],
      example_loss=lambda p, y: tf.reduce_mean(tf.square(p - y), -1),
      x_spec=tf.TensorSpec([None, 4]),
      y_spec=tf.TensorSpec([None, 3]),
    )

  task = tasks.from_arrays(X, LABELS, CLIENTS, targets=['a', 'b', 'c'], model=build)
  with pytest.raises(ValueError, match='one score for two classes or a label, and no threshold'):
    task.preparation.labels(X[:, :3])
  of_own_model = tasks.from_arrays(
    X, LABELS, CLIENTS, targets=['a', 'b', 'c'], model=build, threshold=0.3
  )
  np.testing.assert_array_equal(of_own_model.preparation.labels(X[:, :3]), X[:, :3] > 0.3)


def test_one_name_may_be_that_of_a_column_of_lists():
  table = TABLE.assign(pair=[[a, b] for a, b in zip(X[:, 0], X[:, 1])])
  task = tasks.from_frame(table, 'where', 'pair', features=['dose'])
  assert task.preparation.targets == ('pair',)
  assert task.validation['y'].shape[1:] == (2,)


def softmax(shape, outputs):
  return tf.keras.Sequential([tf.keras.layers.Dense(outputs, 'softmax', input_shape=shape)])


def one_output(shape, outputs):
  del outputs
  return scores(shape, 1)


@pytest.mark.parametrize(
  'y, options, words',
  [
    (LABELS, {'targets': ['a', 'b']}, r'targets has 2 names, y has the shape \(80, 3\): give 3'),
    (LABELS, {'targets': 'abc'}, "targets is 'abc'; give the targets' names"),
    (LABELS[:, 0], {'kind': 'count'}, "kind is 'count'; it must be 'classes' or 'numbers'"),
    (LABELS * 2, {'targets': 'abc', 'kind': 'classes'}, "targets is 'abc'"),
    (LABELS * 2, {'targets': ['a', 'b', 'c'], 'kind': 'classes'}, 'a, b, c, must be 0 or 1 to be'),
    (LABELS.astype(str), {'targets': ['a', 'b', 'c']}, "must be 0 or 1, .* found the text '"),
    (X[:, 0], {'kind': 'classes'}, r"in row 0 .*kind='classes' needs whole numbers or texts"),
    (CLIENTS, {'kind': 'numbers'}, "the labels are texts, such as 'c0', which kind='numbers'"),
    (LABELS, {'targets': ['a', 'b', 'c'], 'model': softmax}, 'end with a sigmoid or with scores'),
    (LABELS, {'targets': ['a', 'b', 'c'], 'model': one_output}, 'has 1 outputs, the data have 3 t'),
    (
      LABELS,
      {'targets': ['a', 'b', 'c'], 'model': scores, 'loss': 'mean_squared_error'},
      'give threshold=, above which',
    ),
  ],
)
def test_what_cannot_be_predicted_is_refused(y, options, words):
  with pytest.raises(tasks.DataError, match=words):
    tasks.from_arrays(X, y, CLIENTS, **options)


@pytest.mark.parametrize(
  'label, words',
  [
    (['late', 'nothing'], "has no column 'nothing'"),
    ([], 'label is .*; it must be a text, the name of a column, or a list of names'),
    (['late', 3], 'or a list of names'),
    (['late', 'late'], 'a column is named twice'),
    (['late', 'where'], 'a column is named twice'),
  ],
)
def test_labels_that_are_no_columns_are_refused(label, words):
  with pytest.raises(tasks.DataError, match=words):
    tasks.from_frame(TABLE, 'where', label)


def test_texts_cannot_be_one_of_several_labels():
  table = TABLE.assign(kind=np.where(LABELS[:, 2], 'yes', 'no'))
  with pytest.raises(tasks.DataError, match="the label 'kind' is no column of numbers"):
    tasks.from_frame(table, 'where', ['late', 'kind'])
