"""The constant prediction of a task against scikit-learn's dummies."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from sklearn import dummy, metrics as sk

import tff_adaptive_tasks as tasks
from tff_adaptive import models
from tff_adaptive_tasks import baselines

keras = tf.keras
RNG = np.random.default_rng(1)
X = RNG.normal(size=(400, 2)).astype(np.float32)
CLIENTS = np.repeat(np.arange(20), 20)
RARE = np.where(RNG.uniform(size=400) < 0.06, 'yes', 'no')
NUMBERS = RNG.normal(50, 4, 400).astype(np.float32)


def one(activation):
  return lambda: keras.Sequential([keras.Input([2]), keras.layers.Dense(1, activation)])


def probabilities(shape, outputs):
  return keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs, 'softmax')])


def sigmoids(shape, outputs):
  return keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs, 'sigmoid')])


def training_targets(task):
  return np.concatenate([task.train.load(c)['y'] for c in task.train.client_ids])


@pytest.mark.parametrize('model', ['logistic_regression', one('sigmoid'), one(None), probabilities])
def test_classes_are_predicted_by_their_shares(model):
  task = tasks.from_arrays(X, RARE, CLIENTS, model=model)
  baseline = baselines.of_task(task, task.build_model(0))
  labels = training_targets(task)
  y = task.validation['y']
  prior = dummy.DummyClassifier(strategy='prior').fit(np.zeros([len(labels), 1]), labels)
  zeros = np.zeros([len(y), 1])
  assert baseline.prediction == "'no'"
  share = np.mean(labels == 0)
  assert baseline.text == f'the most frequent class ({100 * share:.1f} % of the training examples)'
  assert baseline.metrics['accuracy'] == pytest.approx(prior.score(zeros, y))
  loss = sk.log_loss(y, prior.predict_proba(zeros))
  assert baseline.metrics['loss'] == pytest.approx(loss, rel=1e-4)
  assert baseline.metrics['balanced_accuracy'] == 0.5
  assert baseline.metrics['auc_roc'] == 0.5
  assert baseline.metrics['auc_pr'] == pytest.approx(np.mean(y))
  assert baseline.metrics['f1'] == 0  # There are positive examples, and none is found.


def test_numbers_are_predicted_by_their_mean():
  task = tasks.from_arrays(X, NUMBERS, CLIENTS)
  baseline = baselines.of_task(task, task.build_model(0))
  mean = training_targets(task).mean()
  errors = task.validation['y'] - mean
  assert baseline.prediction == f'{mean:.4g}'
  assert baseline.metrics['mean_absolute_error'] == pytest.approx(np.mean(abs(errors)), rel=1e-5)
  r2 = sk.r2_score(task.validation['y'], np.full(len(errors), mean))
  assert baseline.metrics['r2'] == pytest.approx(r2, abs=1e-5)


@pytest.mark.parametrize('model', ['logistic_regression', sigmoids])
def test_several_labels_have_the_more_frequent_value_of_each(model):
  labels = (RNG.uniform(size=(400, 3)) < [0.8, 0.1, 0.3]).astype(int)
  task = tasks.from_arrays(X, labels, CLIENTS, targets=['a', 'b', 'c'], model=model)
  baseline = baselines.of_task(task, task.build_model(0))
  assert baseline.prediction == '1, 0, 0'
  assert baseline.text == 'the more frequent value of each label in the training examples'
  y = task.validation['y']
  always = np.tile([1, 0, 0], (len(y), 1))
  assert baseline.metrics['accuracy'] == pytest.approx((y == always).mean())
  # F1 of a label that is never predicted is 0.
  assert baseline.metrics['f1_macro'] == pytest.approx(sk.f1_score(y, always, average='macro'))
  p = training_targets(task).mean(0)
  loss = -(y * np.log(p) + (1 - y) * np.log1p(-p)).mean()
  assert baseline.metrics['loss'] == pytest.approx(loss, rel=1e-5)


def test_a_model_whose_outputs_are_not_known_has_none():
  task = tasks.load('least_squares')
  assert baselines.of_task(task, task.build_model(0)) is None


def test_a_task_of_the_catalogue_has_one():
  task = tasks.load('digits')
  baseline = baselines.of_task(task, task.build_model(0))
  most = np.bincount(training_targets(task)).argmax()
  assert baseline.prediction == str(most)
  assert baseline.metrics['accuracy'] == pytest.approx(np.mean(task.validation['y'] == most))


@pytest.mark.parametrize('labels', [[0, 1, 2], [-1, 0, 1]])
def test_a_label_that_is_no_class_of_the_model_is_named(labels):
  y = np.tile(labels, 20)
  task = tasks.from_arrays(X[:60], y % 2, CLIENTS[:60], model='logistic_regression')
  model = task.build_model(0)
  task = dataclasses.replace(
    task, train=tasks.InMemoryClientData({'a': (X[:60], y.astype(np.int32))})
  )
  words = (
    f'training clients are {min(labels)} to {max(labels)}, but the model has the classes 0 to 1'
  )
  with pytest.raises(tasks.DataError, match=words):
    baselines.of_task(task, model)


def test_a_model_may_refuse_an_example_of_zeros():
  def forward(weights, x, training, seed):
    with tf.control_dependencies([tf.debugging.assert_positive(tf.reduce_sum(tf.abs(x), 1))]):
      return x @ weights[0]

  model = models.Model(
    initial_weights=[np.zeros([2, 2], np.float32)],
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, 2], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
    metrics={'accuracy': models.accuracy},  # It says that the outputs are scores of classes.
  )
  task = tasks.from_arrays(X, RARE, CLIENTS)
  assert baselines.of_task(task, model).prediction == "'no'"
