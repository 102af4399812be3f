"""Metrics of scikit-learn beside those of a model, on pooled examples and by client."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from sklearn import metrics as sk

from tff_adaptive import models
from tff_adaptive.models import sum_metrics

NAN = float('nan')
# Numbers of examples; the empty client and the client of one example are among them.
SIZES = (40, 0, 7, 1, 25)


def identity_model(shape, outputs, y_spec, names):
  """A model whose predictions are its inputs, [B, *shape]."""
  model = models.Model(
    initial_weights=[np.zeros([], np.float32)],
    forward=lambda weights, x, training, seed: x + weights[0],
    example_loss=lambda predictions, y: tf.zeros(tf.shape(predictions)[:1]),
    x_spec=tf.TensorSpec([None, *shape], tf.float32),
    y_spec=y_spec,
    outputs=outputs,
  )
  return models.with_metrics(model, names)


def evaluations(model):
  """The two evaluations, which are traced once."""
  return (
    models.build_evaluation(model, batch_size=6),
    models.build_client_evaluation(model, batch_size=6),
  )


def check(model, clients, oracles, evaluate=None):
  """Compares pooled values, and those of each client, with scikit-learn's."""
  evaluate_pooled, evaluate_clients = evaluate or evaluations(model)
  weights = model.initial_weights[0]
  arrays = [collections.OrderedDict(x=x, y=y) for x, y in clients]
  pooled = collections.OrderedDict(
    x=np.concatenate([x for x, _ in clients]), y=np.concatenate([y for _, y in clients])
  )
  values = evaluate_pooled(weights, pooled)
  sums = evaluate_clients([weights], arrays)
  for name, oracle in oracles.items():
    wanted = oracle(pooled['x'], pooled['y'])
    assert values[name] == pytest.approx(wanted, rel=1e-5, abs=1e-6, nan_ok=True), name
    by_client = model.metric_value(name, sums[name][0])
    of_clients = [oracle(x, y) if len(y) else NAN for x, y in clients]
    np.testing.assert_allclose(by_client, of_clients, rtol=1e-5, atol=1e-6, err_msg=name)
    all_clients = model.metric_value(name, sums[name][0].sum(0))
    assert float(all_clients) == pytest.approx(wanted, rel=1e-5, abs=1e-6, nan_ok=True), name


def sigmoid(z):
  return 1 / (1 + np.exp(-z.astype(np.float64)))


def on_grid(z):
  """Moves log odds to the middles of bins, where the binned areas are exact."""
  width = 2 * sum_metrics.FARTHEST / sum_metrics.BINS
  return ((np.floor(z / width) + 0.5) * width).astype(np.float32)


def f1(y, predicted):
  if not (y | predicted).any():
    return NAN
  return sk.f1_score(y, predicted)


def roc_auc(z, y):
  if y.min() == y.max():
    return NAN
  return sk.roc_auc_score(y, z)


def average_precision(z, y):
  if not y.any():
    return NAN
  return sk.average_precision_score(y, z)


def defined_mean(values):
  values = np.asarray(values)
  if np.isnan(values).all():
    return NAN
  return float(np.nanmean(values))
