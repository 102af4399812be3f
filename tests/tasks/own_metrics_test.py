"""Metrics and class weights of tasks on own data."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sk
from sklearn.utils import class_weight

import tff_adaptive_tasks as tasks
from tff_adaptive import models

keras = tf.keras
RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 3)).astype(np.float32)
CLIENTS = np.repeat(np.arange(30), 10)
IS_ILL = np.where(X[:, 0] + RNG.normal(size=300) > 1.2, 'yes', 'no')
THREE = np.array(['low', 'mid', 'high'])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 1)]
NUMBERS = (100 + X @ [1.0, -2.0, 0.5]).astype(np.float32)
WEIGHTS = [np.float32([[0, 1], [0, -0.5], [0, 0.2]]), np.float32([0.7, 0])]


def one(activation=None):
  return lambda: keras.Sequential([keras.Input([3]), keras.layers.Dense(1, activation)])


def of_shape(shape, outputs):
  return keras.Sequential([keras.Input(shape), keras.layers.Dense(outputs, 'softmax')])


def single(weights):
  return [weights[0][:, 1:] - weights[0][:, :1], weights[1][1:] - weights[1][:1]]


@pytest.mark.parametrize(
  'model, weights',
  [
    ('logistic_regression', WEIGHTS),
    (of_shape, WEIGHTS),
    (one(), single(WEIGHTS)),
    (one('sigmoid'), single(WEIGHTS)),
  ],
)
def test_a_table_of_two_classes_has_metrics_that_see_rare_ones(model, weights):
  task = tasks.from_arrays(X, IS_ILL, CLIENTS, model=model, metric='auc_pr')
  built = task.build_model(3)
  assert task.metric == 'auc_pr'
  names = ('loss', 'accuracy', 'balanced_accuracy', 'f1', 'auc_roc', 'auc_pr')
  assert built.metric_names == names
  values = models.build_evaluation(built)(weights, task.validation)
  y = task.validation['y'].astype(int)
  score = task.validation['x'] @ single(WEIGHTS)[0][:, 0] - 0.7
  assert values['accuracy'] == pytest.approx(np.mean((score > 0) == y))
  assert values['balanced_accuracy'] == pytest.approx(sk.balanced_accuracy_score(y, score > 0))
  assert values['f1'] == pytest.approx(sk.f1_score(y, score > 0))
  assert values['auc_roc'] == pytest.approx(sk.roc_auc_score(y, score), abs=0.02)
  assert values['auc_pr'] == pytest.approx(sk.average_precision_score(y, score), abs=0.05)


def test_more_classes_have_means_over_classes_and_numbers_have_r2():
  task = tasks.from_arrays(X, THREE, CLIENTS)
  assert task.build_model(0).metric_names == ('loss', 'accuracy', 'balanced_accuracy', 'f1_macro')
  task = tasks.from_arrays(X, NUMBERS, CLIENTS, metric='r2')
  assert task.build_model(0).metric_names == ('loss', 'mean_absolute_error', 'r2')
  weights = [np.float32([[1], [-1], [0.5]]), np.float32([100])]
  values = models.build_evaluation(task.build_model(0))(weights, task.validation)
  predicted = task.validation['x'] @ weights[0][:, 0] + 100
  assert values['r2'] == pytest.approx(sk.r2_score(task.validation['y'], predicted), rel=1e-4)


@pytest.mark.parametrize(
  'model, metrics, names',
  [
    ('mlp', ['precision', 'recall'], ('loss', 'accuracy', 'precision', 'recall')),
    ('logistic_regression', ['accuracy'], ('loss', 'accuracy')),
    (one('sigmoid'), ['accuracy', 'f1'], ('loss', 'accuracy', 'f1')),
    (one('sigmoid'), [keras.metrics.AUC(name='auc')], ('loss', 'auc')),
    (one('sigmoid'), ['mse', 'auc_pr'], ('loss', 'mse', 'auc_pr')),
    (one('sigmoid'), [], ('loss',)),
  ],
)
def test_metrics_are_those_that_are_named(model, metrics, names):
  task = tasks.from_arrays(X, IS_ILL, CLIENTS, model=model, metrics=metrics)
  assert task.build_model(0).metric_names == names


def test_the_positive_class_is_the_one_that_is_named():
  task = tasks.from_arrays(X, IS_ILL, CLIENTS, positive='no')
  values = models.build_evaluation(task.build_model(3))(WEIGHTS, task.validation)
  y = task.validation['y'].astype(int)
  score = task.validation['x'] @ single(WEIGHTS)[0][:, 0] - 0.7
  assert values['f1'] == pytest.approx(sk.f1_score(y, score > 0, pos_label=0))
  assert values['auc_pr'] == pytest.approx(sk.average_precision_score(1 - y, -score), abs=0.05)
  with pytest.raises(tasks.DataError, match="positive is 'maybe'; the classes are: 'no', 'yes'"):
    tasks.from_arrays(X, IS_ILL, CLIENTS, positive='maybe')
  with pytest.raises(tasks.DataError, match="positive is 'mid', which is for two classes"):
    tasks.from_arrays(X, THREE, CLIENTS, positive='mid')


def test_labels_in_another_form_of_unicode_are_known():
  names = np.where(IS_ILL == 'yes', 'cafe\u0301', 'b')
  options = {'positive': 'cafe\u0301', 'class_weight': {'cafe\u0301': 3}}
  model = tasks.from_arrays(X, names, CLIENTS, **options).build_model(0)
  assert model.class_weights == (1.0, 3.0)
  assert model.outputs.positive == 1


def test_a_metric_to_judge_by_is_added():
  task = tasks.from_arrays(X, IS_ILL, CLIENTS, metrics=['f1'], metric='recall_macro')
  assert task.build_model(0).metric_names == ('loss', 'accuracy', 'f1', 'recall_macro')
  other = tasks.with_metric(task, 'precision')
  assert other.metric == 'precision'
  assert other.build_model(0).metric_names[-1] == 'precision'
  assert task.build_model(0).metric_names[-1] == 'recall_macro'
  digits = tasks.with_metric(tasks.load('digits'), 'balanced_accuracy')
  assert digits.build_model(0).metric_names == ('loss', 'accuracy', 'balanced_accuracy')


def test_the_threshold_is_that_of_the_task():
  task = tasks.from_arrays(X, IS_ILL, CLIENTS, model=one('sigmoid'), threshold=0.3)
  built = task.build_model(0)
  weights = single(WEIGHTS)
  values = models.build_evaluation(built)(weights, task.validation)
  y = task.validation['y'].astype(int)
  p = 1 / (1 + np.exp(-(task.validation['x'] @ weights[0][:, 0] + weights[1][0])))
  assert values['f1'] == pytest.approx(sk.f1_score(y, p > 0.3))


def test_balanced_weights_are_scikit_learns_for_the_pooled_training_labels():
  task = tasks.from_arrays(X, IS_ILL, CLIENTS, class_weight='balanced')
  labels = np.concatenate([task.train.load(c)['y'] for c in task.train.client_ids])
  wanted = class_weight.compute_class_weight('balanced', classes=np.array([0, 1]), y=labels)
  assert task.build_model(0).class_weights == pytest.approx(wanted)


def test_weights_are_given_by_label():
  task = tasks.from_arrays(X, THREE, CLIENTS, class_weight={'mid': 3})
  assert task.preparation.classes == ('high', 'low', 'mid')
  assert task.build_model(0).class_weights == (1.0, 1.0, 3.0)
  keras_task = tasks.from_arrays(X, IS_ILL, CLIENTS, model=one(), class_weight={'yes': 5.0})
  model = keras_task.build_model(0)
  x = keras_task.validation['x'][:8]
  y = keras_task.validation['y'][:8]
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  losses = model.example_loss(model.forward(weights, x, False, None), y)
  loss, _ = model.loss_and_metrics(weights, tf.constant(x), tf.constant(y))
  np.testing.assert_allclose(loss, np.mean(np.where(y == 1, 5, 1) * losses), rtol=1e-6)


@pytest.mark.parametrize(
  'y, options, words',
  [
    (IS_ILL, {'class_weight': {'maybe': 2}}, "'maybe'; the classes are: 'no', 'yes'"),
    (IS_ILL, {'class_weight': {'yes': 'much'}}, 'weights must be numbers'),
    (IS_ILL, {'class_weight': {'yes': -1}}, '0 or more'),
    (IS_ILL, {'class_weight': 'even'}, "give 'balanced' or weights by label, such as {'yes': 10"),
    (NUMBERS, {'class_weight': 'balanced'}, 'numbers to predict, or several'),
    (IS_ILL, {'metric': 'f2'}, "'f2' is no metric here; for two classes there are: precision"),
    (THREE, {'metric': 'f1'}, 'f1_macro.* are for two classes'),
    (NUMBERS, {'metrics': ['f1']}, 'for numbers there are: mean_absolute_error'),
    (IS_ILL, {'metrics': [keras.metrics.AUC()]}, 'are for Keras models: .* metrics by name'),
  ],
)
def test_what_does_not_suit_the_labels_is_refused_in_one_line(y, options, words):
  with pytest.raises(tasks.DataError, match=words) as error:
    tasks.from_arrays(X, y, CLIENTS, **options)
  assert '\n' not in str(error.value)
