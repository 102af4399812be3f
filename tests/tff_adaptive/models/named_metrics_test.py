"""Metrics by name against scikit-learn, on pooled examples and by client, with undefined ones."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sk

from tests.helpers.metric_oracles import (
  NAN,
  SIZES,
  average_precision,
  check,
  defined_mean,
  evaluations,
  f1,
  identity_model,
  on_grid,
  roc_auc,
  sigmoid,
)
from tff_adaptive import models
from tff_adaptive._utils import metric_names
from tff_adaptive.models import named_metrics, sum_metrics


def of_two(score):
  """An oracle for labels, which predicts class 1 for log odds above 0."""
  return lambda z, y: score(y, z > 0)


def balanced(y, predicted):
  recalls = [np.mean(predicted[y == c] == c) for c in np.unique(y)]
  return float(np.mean(recalls))


OF_TWO_CLASSES = {
  'accuracy': of_two(sk.accuracy_score),
  'precision': of_two(lambda y, p: sk.precision_score(y, p, zero_division=np.nan)),
  'recall': of_two(lambda y, p: sk.recall_score(y, p, zero_division=np.nan)),
  'f1': of_two(lambda y, p: f1(y.astype(bool), p)),
  'balanced_accuracy': of_two(balanced),
  'auc_roc': roc_auc,
  'auc_pr': average_precision,
}


def two_class_clients(kind):
  rng = np.random.default_rng(5)
  clients = []
  for i, n in enumerate(SIZES):
    y = rng.integers(0, 2, n)
    if kind == 'rare':
      y = (rng.uniform(size=n) < 0.1).astype(int)
    if kind == 'no positives' or i == 2:  # The third client has one class in every case.
      y = np.zeros(n, int)
    if kind == 'only positives':
      y = np.ones(n, int)
    z = on_grid(rng.normal(y - 0.5, 1.5))
    if kind == 'never positive':
      z = -np.abs(z) - np.float32(0.05)
    clients.append((z, y))
  return clients


KINDS = ('even', 'rare', 'no positives', 'only positives', 'never positive')


@pytest.mark.parametrize('form', ['score', 'probability', 'two scores', 'two probabilities'])
@pytest.mark.sample(2)
def test_metrics_of_two_classes_are_those_of_scikit_learn(form):
  is_single = form in ('score', 'probability')
  are_probabilities = 'probabilit' in form
  threshold = None
  if is_single:
    threshold = 0.5 if are_probabilities else 0.0
  outputs = models.Outputs(2, are_probabilities, threshold)

  def predictions(z):
    if are_probabilities:
      p = sigmoid(z)
      return np.stack([1 - p, p], 1)[:, int(is_single) :]
    if is_single:
      return z[:, np.newaxis]
    return np.stack([np.full_like(z, 0.25), z + 0.25], 1)

  def log_odds(x):
    x = x.astype(np.float64)
    if are_probabilities:
      p = x[:, -1]
      return np.round(np.log(p) - np.log1p(-p), 3)  # Undoes float32's rounding of bins' middles.
    if is_single:
      return x[:, 0]
    return x[:, 1] - x[:, 0]

  def oracle_of(name):
    return lambda x, y: OF_TWO_CLASSES[name](log_odds(x), y.astype(int))

  # Keras's single outputs have targets that are floating-point numbers.
  if is_single:
    shape = [1]
    dtype = tf.float32
  else:
    shape = [2]
    dtype = tf.int32
  model = identity_model(shape, outputs, tf.TensorSpec([None], dtype), list(OF_TWO_CLASSES))
  oracles = {name: oracle_of(name) for name in OF_TWO_CLASSES}
  evaluate = evaluations(model)
  for kind in KINDS:
    clients = [(predictions(z).astype(np.float32), y) for z, y in two_class_clients(kind)]
    check(model, clients, oracles, evaluate)


def test_binned_areas_differ_from_the_exact_ones_by_no_more_than_the_bound():
  model = identity_model(
    [], models.Outputs(2, threshold=0.0), tf.TensorSpec([None], tf.int32), ['auc_roc', 'auc_pr']
  )
  spreads = [0.02] * 10 + [1.0] * 10 + [5.0] * 10
  clients = []
  for seed, spread in enumerate(spreads):
    rng = np.random.default_rng(seed)
    y = (rng.uniform(size=400) < 0.2).astype(np.int32)
    z = rng.normal(y * spread / 2, spread).astype(np.float32)
    clients.append({'x': z, 'y': y})
  sums = models.build_client_evaluation(model)([[np.float32(0)]], clients)
  scores = {'roc': sk.roc_auc_score, 'pr': sk.average_precision_score}
  for curve, score in scores.items():
    values = model.metric_value(f'auc_{curve}', sums[f'auc_{curve}'][0])
    for i, client in enumerate(clients):
      bound = sum_metrics.auc_error_bound(sums[f'auc_{curve}'][0, i], curve)
      assert abs(values[i] - score(client['y'], client['x'])) <= bound + 1e-9
      if spreads[i] > 0.5:
        assert bound < {'roc': 0.02, 'pr': 0.2}[curve]


def macro(score):
  """The mean over the classes that there are of scikit-learn's score, where it is defined."""

  def oracle(x, y):
    values = score(y, x.argmax(1), average=None, labels=range(x.shape[1]), zero_division=np.nan)
    return defined_mean(values)

  return oracle


def top_2(x, y):
  ranks = (x > x[np.arange(len(y)), y][:, np.newaxis]).sum(1)
  return np.mean(ranks < 2)


@pytest.mark.parametrize('present', [5, 3, 1])
def test_metrics_of_many_classes_are_those_of_scikit_learn(present):
  rng = np.random.default_rng(present)
  oracles = {
    'accuracy': lambda x, y: sk.accuracy_score(y, x.argmax(1)),
    'balanced_accuracy': lambda x, y: balanced(y, x.argmax(1)),
    'precision_macro': macro(sk.precision_score),
    'recall_macro': macro(sk.recall_score),
    'f1_macro': macro(sk.f1_score),
    'top_2_accuracy': top_2,
  }
  clients = []
  for n in SIZES:
    y = rng.integers(0, present, n)
    x = rng.normal(size=(n, 5)) + 2 * np.eye(5)[y]
    clients.append((x.astype(np.float32), y))
  spec = tf.TensorSpec([None], tf.int32)
  check(identity_model([5], models.Outputs(5), spec, list(oracles)), clients, oracles)
  if present == 5:
    pooled_x = np.concatenate([x for x, _ in clients])
    pooled_y = np.concatenate([y for _, y in clients])
    f1_of_all = sk.f1_score(pooled_y, pooled_x.argmax(1), average='macro')
    assert oracles['f1_macro'](pooled_x, pooled_y) == pytest.approx(f1_of_all)
    top = sk.top_k_accuracy_score(pooled_y, pooled_x, k=2)
    assert top_2(pooled_x, pooled_y) == pytest.approx(top)


@pytest.mark.parametrize('is_single', [False, True])
def test_the_positive_class_may_be_the_first(is_single):
  outputs = models.Outputs(2, threshold=0.0 if is_single else None, positive=0)
  names = ['precision', 'recall', 'f1', 'auc_roc', 'auc_pr', 'accuracy', 'balanced_accuracy']
  spec = tf.TensorSpec([None], tf.float32 if is_single else tf.int32)
  model = identity_model([1] if is_single else [2], outputs, spec, names)

  def predictions(z):
    if is_single:
      return z[:, np.newaxis]
    return np.stack([np.zeros_like(z), z], 1)

  def of_first(name):
    # scikit-learn's scores of the first class are those of the second with both renamed.
    return lambda x, y: OF_TWO_CLASSES[name](-x[:, -1], (1 - y).astype(int))

  clients = [(predictions(z), y) for z, y in two_class_clients('rare')]
  check(model, clients, {name: of_first(name) for name in names})


def r2(x, y):
  if len(y) < 2 or (y == y[0]).all():
    return NAN
  return sk.r2_score(y, x)


OF_NUMBERS = {
  'mean_absolute_error': lambda x, y: sk.mean_absolute_error(y, x),
  'mean_squared_error': lambda x, y: sk.mean_squared_error(y, x),
  # Over examples and outputs, as Keras's; scikit-learn takes the mean of the outputs' roots.
  'root_mean_squared_error': lambda x, y: np.sqrt(sk.mean_squared_error(y, x)),
  'r2': r2,
  'quantile_loss_0.9': lambda x, y: sk.mean_pinball_loss(y, x, alpha=0.9),
  'quantile_loss_0.1': lambda x, y: sk.mean_pinball_loss(y, x, alpha=0.1),
}


@pytest.mark.parametrize('x_shape, y_shape', [((), ()), ((1,), ()), ((3,), (3,))])
@pytest.mark.parametrize('mean', [0.0, 1000.0])
def test_metrics_of_numbers_are_those_of_scikit_learn(x_shape, y_shape, mean):
  rng = np.random.default_rng(1)
  clients = []
  for i, n in enumerate(SIZES):
    y = rng.normal(mean, 3, (n, *y_shape)).astype(np.float32)
    if i == 2:
      y[:] = y[0]  # No variance.
    x = (y + rng.normal(0, 2, y.shape)).astype(np.float32)
    clients.append((x.reshape(n, *x_shape), y))
  outputs = models.Outputs(
    num_numbers=int(np.prod(y_shape)), target_rank=1 + len(y_shape), center=mean
  )
  spec = tf.TensorSpec([None, *y_shape], tf.float32)
  oracles = {}
  for name, oracle in OF_NUMBERS.items():
    oracles[name] = lambda x, y, oracle=oracle: oracle(x.reshape(y.shape), y)
  check(identity_model(x_shape, outputs, spec, list(oracles)), clients, oracles)


def test_an_undefined_mean_is_nan_and_not_0():
  model = identity_model([5], models.Outputs(5), tf.TensorSpec([None], tf.int32), ['accuracy'])
  finalized = models.finalize_metrics({'a': tf.zeros([2]), 'b': tf.constant([3.0, 2.0])})
  assert np.isnan(finalized['a'])
  assert finalized['b'] == 1.5
  assert np.isnan(model.metric_value('accuracy', [0, 0]))


@pytest.mark.parametrize(
  'outputs, name, words',
  [
    (models.Outputs(3), 'f1', '.f1. is no metric here; for 3 classes there are: accuracy, .*'),
    (models.Outputs(3), 'top_3_accuracy', 'for 3 classes'),
    (models.Outputs(2), 'r2', 'for two classes there are: precision, recall, f1, auc_roc'),
    (models.Outputs(), 'f1', 'for numbers there are: mean_absolute_error'),
    (models.Outputs(), 'quantile_loss_1.5', 'Q is between 0 and 1'),
    (models.Outputs(num_labels=3, threshold=0.0), 'f1', 'for several labels there are: accuracy'),
    (None, 'f1', 'what its outputs mean is not known'),
  ],
)
def test_a_name_that_does_not_suit_the_outputs_is_refused(outputs, name, words):
  with pytest.raises(ValueError, match=words):
    identity_model([3], outputs, tf.TensorSpec([None], tf.int32), [name])


def test_the_direction_belongs_to_the_metric_and_its_name_says_it():
  def metric(is_error):
    return models.SumMetric(1, lambda p, y: p[:, :1], lambda sums: sums[..., 0], is_error)

  model = identity_model([3], None, tf.TensorSpec([None], tf.int32), [])
  good = models.with_metrics(model, {'gain': metric(False), 'waste_error': metric(True)})
  assert good.metric_names == ('loss', 'gain', 'waste_error')
  with pytest.raises(ValueError, match=r"'waste' has is_error=True, .*: call it waste_error, say"):
    models.with_metrics(model, {'waste': metric(True)})
  with pytest.raises(ValueError, match="'cost' has is_error=False"):
    models.with_metrics(model, {'cost': metric(False)})
  names = {
    *named_metrics.OF_TWO_CLASSES,
    *named_metrics.OF_CLASSES,
    *named_metrics.OF_NUMBERS,
    *named_metrics.OF_LABELS,
  }
  assert {name for name in names if metric_names.is_error(name)} == {
    'mean_absolute_error',
    'mean_squared_error',
    'root_mean_squared_error',
    'quantile_loss_Q',
  }


def test_a_constant_prediction_has_the_shares_of_classes():
  shares = [0.7, 0.3]
  for are_probabilities in (False, True):
    two = models.Outputs(2, are_probabilities).constant(shares)
    one = models.Outputs(2, are_probabilities, 0.5).constant(shares)
    if not are_probabilities:
      two = np.exp(two)
      one = sigmoid(one)
    np.testing.assert_allclose(two, shares, rtol=1e-6)
    np.testing.assert_allclose(one, shares[1:], rtol=1e-6)
