"""Keras's metrics whose state is a sum, against Keras itself, over batches and by client."""

import collections
import typing
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import models

keras = tf.keras
of = keras.metrics


def dense(units, activation=None):
  return lambda: keras.Sequential([keras.Input([5]), keras.layers.Dense(units, activation)])


BINARY = (dense(1, 'sigmoid'), 'binary_crossentropy')
LOGITS = (dense(1), keras.losses.BinaryCrossentropy(from_logits=True))
ONE_HOT = (dense(4, 'softmax'), 'categorical_crossentropy')
NUMBERS = (dense(3), 'mse')

# Model, loss, metric.
CASES = [
  (*BINARY, of.AUC()),
  (*LOGITS, of.AUC(from_logits=True, num_thresholds=50)),
  (*BINARY, of.AUC(thresholds=[0.3, 0.4, 0.8])),
  (*BINARY, of.AUC(summation_method='minoring')),
  (*BINARY, of.AUC(summation_method='majoring')),
  (*BINARY, of.AUC(curve='PR')),
  (*BINARY, of.AUC(curve='PR', summation_method='majoring')),
  (*ONE_HOT, of.AUC()),
  (*BINARY, of.Precision()),
  (*BINARY, of.Recall(thresholds=0.4)),
  (*LOGITS, of.Precision(thresholds=0.0)),
  (*ONE_HOT, of.Recall(class_id=2, thresholds=0.3)),
  (*BINARY, of.TruePositives()),
  (*BINARY, of.TrueNegatives()),
  (*BINARY, of.FalsePositives()),
  (*BINARY, of.FalseNegatives(thresholds=0.6)),
  (*BINARY, of.F1Score(threshold=0.5, average='micro')),
  (*ONE_HOT, of.F1Score(average='macro')),
  (*ONE_HOT, of.FBetaScore(average='weighted', beta=2.0)),
  (*ONE_HOT, of.F1Score(average='micro', threshold=0.3)),
  (*BINARY, of.BinaryIoU(threshold=0.4)),
  (*ONE_HOT, of.OneHotMeanIoU(4)),
  (*ONE_HOT, of.OneHotIoU(4, [1, 3])),
  (*ONE_HOT, of.MeanIoU(4, sparse_y_true=False, sparse_y_pred=False, ignore_class=2)),
  (*NUMBERS, of.RootMeanSquaredError()),
  (*NUMBERS, of.R2Score()),
]


def arrays(build, n=60):
  rng = np.random.default_rng(3)
  x = rng.normal(size=(n, 5)).astype(np.float32)
  classes = rng.integers(0, 4, n)
  if build in (BINARY[0], LOGITS[0]):
    return x, (classes == 0).astype(np.float32)
  if build is NUMBERS[0]:
    return x, rng.normal(size=(n, 3)).astype(np.float32)
  return x, np.eye(4, dtype=np.float32)[classes]


@pytest.mark.sample(10)
@pytest.mark.parametrize('build, loss, metric', CASES)
def test_values_are_those_of_keras_pooled_and_by_client(build, loss, metric):
  x, y = arrays(build)
  model = models.from_keras(
    build, loss, [metric], seed=4, y_spec=tf.TensorSpec([None, *y.shape[1:]], tf.float32)
  )
  weights = model.initial_weights[0]
  name = model.metric_names[1]
  outputs = model.forward(tuple(map(tf.constant, weights)), x, False, None)

  def of_keras(rows):
    again = type(metric).from_config(metric.get_config())
    again.update_state(y[rows].reshape(len(y[rows]), -1), outputs[rows])
    return float(again.result())

  wanted = of_keras(slice(None))
  pooled = models.build_evaluation(model, batch_size=7)(weights, collections.OrderedDict(x=x, y=y))
  assert pooled[name] == pytest.approx(wanted, rel=1e-4, abs=1e-6)
  parts = [slice(0, 35), slice(35, 60)]
  clients = [{'x': x[rows], 'y': y[rows]} for rows in parts]
  sums = models.build_client_evaluation(model, batch_size=7)([weights], clients)[name][0]
  by_client = [of_keras(rows) for rows in parts]
  np.testing.assert_allclose(model.metric_value(name, sums), by_client, rtol=1e-4, atol=1e-6)
  assert float(model.metric_value(name, sums.sum(0))) == pytest.approx(wanted, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
  'metric',
  [of.AUC(), of.Recall(), of.F1Score(average='micro', threshold=0.5), of.AUC(curve='PR')],
)
def test_without_positive_examples_the_value_is_nan_where_keras_has_0(metric):
  model = models.from_keras(*BINARY, [metric])
  x = np.full((6, 5), -1, np.float32)
  weights = [np.full([5, 1], 5, np.float32), np.zeros(1, np.float32)]  # Nothing is predicted.
  values = models.build_evaluation(model)(weights, {'x': x, 'y': np.zeros([6, 1], np.float32)})
  assert np.isnan(values[model.metric_names[1]])


class Unsupported(typing.NamedTuple):
  metric: object
  message: str
  build: Callable
  loss: object


@pytest.mark.parametrize(
  'given',
  [
    Unsupported(
      of.AUC(multi_label=True, num_labels=1), 'multi_label=True, which is not supported', *BINARY
    ),
    Unsupported(
      of.Precision(top_k=2), 'top_k=2, which is not supported here: leave it out', *ONE_HOT
    ),
    Unsupported(
      of.Recall(thresholds=[0.2, 0.5]), '2 thresholds, .* give a metric for each', *BINARY
    ),
    Unsupported(of.F1Score(), "average=None, .* give 'macro'", *ONE_HOT),
    Unsupported(of.R2Score(class_aggregation=None), 'class_aggregation=None', *NUMBERS),
    Unsupported(of.R2Score(num_regressors=2), 'num_regressors=2', *NUMBERS),
    Unsupported(
      of.PrecisionAtRecall(0.5), 'neither a mean over examples nor one of these.*AUC', *BINARY
    ),
    Unsupported(
      of.Recall(), "such as 'f1_macro'", dense(4), loss='sparse_categorical_crossentropy'
    ),
  ],
)
def test_what_is_not_supported_is_refused_in_one_line(given):
  with pytest.raises(ValueError, match=given.message) as error:
    models.from_keras(given.build, given.loss, [given.metric])
  assert '\n' not in str(error.value)


@pytest.mark.parametrize(
  'build, loss, names',
  [
    (*BINARY, ['f1', 'auc_pr', 'balanced_accuracy']),
    (*LOGITS, ['auc_roc']),
    (*ONE_HOT, ['f1_macro', 'top_2_accuracy', 'accuracy']),
    (dense(4), keras.losses.SparseCategoricalCrossentropy(from_logits=True), ['precision_macro']),
    (*NUMBERS, ['r2', 'quantile_loss_0.5', 'mean_absolute_error', 'root_mean_squared_error']),
    (*BINARY, ['AUC', of.Recall()]),
  ],
)
def test_a_keras_model_takes_names_if_its_loss_says_what_outputs_mean(build, loss, names):
  model = models.from_keras(build, loss, names)
  called = ['loss']
  for name in names:
    called.append({'AUC': 'auc'}.get(name, name) if isinstance(name, str) else name.name)
  assert {*model.metric_names} == {*called}


def test_a_name_is_refused_if_the_loss_does_not_say_what_outputs_mean():
  with pytest.raises(ValueError, match="'f1' depends on what the outputs mean"):
    models.from_keras(dense(1), lambda y, p: (y - p)[:, 0] ** 2, ['f1'])
