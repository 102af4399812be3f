"""Areas of each class against the others, and metrics of several labels, against scikit-learn."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sk

from tests.helpers.metric_oracles import (
  SIZES,
  average_precision,
  check,
  defined_mean,
  f1,
  identity_model,
  on_grid,
  roc_auc,
  sigmoid,
)
from tff_adaptive import models
from tff_adaptive.models import named_metrics, sum_metrics


def in_bins(log_odds):
  """The numbers of the bins of log odds, by which the binned areas rank examples."""
  width = 2 * sum_metrics.FARTHEST / sum_metrics.BINS
  bins = np.floor((log_odds + sum_metrics.FARTHEST) / width)
  return np.clip(bins, 0, sum_metrics.BINS - 1)


def one_against_rest(area):
  """The mean over classes of an area for the class against all others, where it is defined."""

  def oracle(x, y):
    z = x.astype(np.float64)
    shares = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    bins = in_bins(np.log(shares) - np.log1p(-shares))
    return defined_mean([area(bins[:, c], (y == c).astype(int)) for c in range(x.shape[1])])

  return oracle


@pytest.mark.parametrize('are_probabilities', [False, True])
def test_areas_of_many_classes_are_those_of_each_against_the_others(are_probabilities):
  rng = np.random.default_rng(2)
  clients = []
  for n in SIZES:
    y = rng.integers(0, 4, n)
    z = rng.normal(size=(n, 4)) + 1.5 * np.eye(4)[y]
    clients.append((z.astype(np.float32), y))
  oracles = {
    'auc_roc_macro': one_against_rest(roc_auc),
    'auc_pr_macro': one_against_rest(average_precision),
  }
  if not are_probabilities:
    spec = tf.TensorSpec([None], tf.int32)
    check(identity_model([4], models.Outputs(4), spec, list(oracles)), clients, oracles)
  # And scikit-learn's own, of the scores without bins.
  z = np.concatenate([z for z, _ in clients])
  y = np.concatenate([y for _, y in clients])
  shares = np.exp(z) / np.exp(z).sum(1, keepdims=True)
  x = shares if are_probabilities else z
  spec = tf.TensorSpec([None], tf.int32)
  model = identity_model([4], models.Outputs(4, are_probabilities), spec, list(oracles))
  examples = collections.OrderedDict(x=x.astype(np.float32), y=y)
  values = models.build_evaluation(model)(model.initial_weights[0], examples)
  exact = sk.roc_auc_score(y, shares, multi_class='ovr', average='macro')
  assert values['auc_roc_macro'] == pytest.approx(exact, abs=0.003)
  exact = sk.average_precision_score(np.eye(4)[y], shares, average='macro')
  assert values['auc_pr_macro'] == pytest.approx(exact, abs=0.02)


def of_labels(score, average):
  return lambda z, y: score(y, z > 0, average=average, zero_division=np.nan)


def macro_over_labels(score):
  def oracle(z, y):
    return defined_mean([score(z[:, i], y[:, i]) for i in range(y.shape[1])])

  return oracle


def f1_of_label(z, y):
  return f1(y.astype(bool), z > 0)


def micro_f1(z, y):
  return f1_of_label(z.ravel(), y.ravel())


@pytest.mark.parametrize('are_probabilities', [False, True])
def test_metrics_of_several_labels_are_those_of_scikit_learn(are_probabilities):
  rng = np.random.default_rng(3)
  clients = []
  for i, n in enumerate(SIZES):
    y = (rng.uniform(size=(n, 3)) < [0.5, 0.2, 0.7]).astype(np.float32)
    if i == 2:
      y[:, 1] = 0
    clients.append((on_grid(rng.normal(2 * y - 1, 2)), y))
  oracles = {
    'accuracy': lambda z, y: np.mean((z > 0) == y),
    'exact_match': lambda z, y: sk.accuracy_score(y, z > 0),
    'precision_macro': macro_over_labels(
      lambda z, y: sk.precision_score(y, z > 0, zero_division=np.nan)
    ),
    'recall_macro': macro_over_labels(lambda z, y: sk.recall_score(y, z > 0, zero_division=np.nan)),
    'f1_macro': macro_over_labels(f1_of_label),
    'precision_micro': of_labels(sk.precision_score, 'micro'),
    'recall_micro': of_labels(sk.recall_score, 'micro'),
    'f1_micro': micro_f1,
    'auc_roc_macro': macro_over_labels(roc_auc),
    'auc_pr_macro': macro_over_labels(average_precision),
  }
  assert [*oracles] == [*named_metrics.OF_LABELS]
  scores = {**oracles}
  threshold = 0.0
  if are_probabilities:
    threshold = 0.5
    clients = [(sigmoid(z).astype(np.float32), y) for z, y in clients]
    for name, oracle in oracles.items():
      # Undoes float32's rounding of bins' middles.
      scores[name] = lambda p, y, oracle=oracle: oracle(
        np.round(np.log(p.astype(float)) - np.log1p(-p.astype(float)), 3), y
      )
  outputs = models.Outputs(are_probabilities=are_probabilities, threshold=threshold, num_labels=3)
  spec = tf.TensorSpec([None, 3], tf.float32)
  check(identity_model([3], outputs, spec, list(oracles)), clients, scores)
