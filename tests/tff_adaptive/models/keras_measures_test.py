"""Losses and metrics against what Keras's own `evaluate` gives."""

import collections
import typing
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive.models import keras_measures

keras = tf.keras
losses = keras.losses
metrics_of = keras.metrics
RNG = np.random.default_rng(0)
SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)


def dense(units, shape=(5,), activation=None):
  return lambda: keras.Sequential([keras.Input(shape), keras.layers.Dense(units, activation)])


def flat():
  return keras.Sequential([keras.Input([5]), keras.layers.Dense(1), keras.layers.Reshape([])])


def classes(*shape):
  return RNG.integers(0, 4, (11, *shape)).astype(np.int32)


def numbers(*shape):
  return RNG.normal(size=(11, *shape)).astype(np.float32)


class Case(typing.NamedTuple):
  build: Callable
  loss: object
  metrics: Sequence[object]
  y: np.ndarray


CASES = {
  'classes': Case(
    dense(4),
    SPARSE,
    metrics=['accuracy', metrics_of.SparseTopKCategoricalAccuracy(2, name='top_2')],
    y=classes(),
  ),
  'one hot': Case(
    dense(4, activation='softmax'),
    'categorical_crossentropy',
    metrics=['accuracy', 'mae'],
    y=np.eye(4, dtype=np.float32)[classes()],
  ),
  'yes or no': Case(
    dense(1, activation='sigmoid'),
    'binary_crossentropy',
    metrics=['accuracy'],
    y=RNG.integers(0, 2, 11).astype(np.float32),
  ),
  'numbers': Case(
    dense(1),
    losses.Huber(0.7),
    metrics=['mean_absolute_error', metrics_of.MeanSquaredError()],
    y=numbers(),
  ),
  'labels in a column': Case(dense(4), SPARSE, metrics=['accuracy'], y=classes(1)),
  'an output without dimensions': Case(flat, 'mse', metrics=['mean_absolute_error'], y=numbers()),
  'a number at each step': Case(dense(1, (3, 5)), 'mse', metrics=[], y=numbers(3)),
  'sequences': Case(
    dense(4, (3, 5), 'softmax'),
    'sparse_categorical_crossentropy',
    metrics=['accuracy'],
    y=classes(3),
  ),
}


@pytest.mark.sample(4)
@pytest.mark.parametrize('case', CASES)
def test_values_are_those_of_keras(case):
  build, loss, metrics, y = CASES[case]
  spec = tf.TensorSpec([None, *y.shape[1:]], y.dtype)
  model = models.from_keras(build, loss, metrics, seed=2, y_spec=spec)
  x = (
    np.random.default_rng(1).normal(size=(11, *model.input_spec['x'].shape[1:])).astype(np.float32)
  )
  values = models.build_evaluation(model, batch_size=4)(
    model.initial_weights[0], collections.OrderedDict(x=x, y=y)
  )
  reference = model.to_keras(model.initial_weights[0])
  reference.compile(loss=loss, metrics=metrics, run_eagerly=True)
  expected = reference.evaluate(x, y, verbose=0, return_dict=True)
  assert len(values) == len(expected)
  for value, wanted in zip(values.values(), expected.values()):
    assert value == pytest.approx(wanted, rel=1e-5)


def test_targets_have_the_form_that_the_loss_takes():
  sparse = models.from_keras(dense(4, (3, 5)), 'sparse_categorical_crossentropy')
  assert sparse.input_spec['y'] == tf.TensorSpec([None, 3], tf.int32)
  for build, shape in ((dense(2), [None, 2]), (lstm, [None, 4, 1])):
    spec = models.from_keras(build, 'mse').input_spec['y']
    assert spec == tf.TensorSpec(shape, tf.float32)


def test_functions_of_ones_own_are_losses_and_metrics():
  def cubed(y_true, y_pred):
    return tf.abs(y_true - y_pred) ** 3

  def is_close(y_true, y_pred):
    return tf.abs(y_true - y_pred)[:, 0] < 1

  model = models.from_keras(dense(1), cubed, [is_close])
  weights = [np.ones([5, 1], np.float32), np.zeros(1, np.float32)]
  data = collections.OrderedDict(x=np.eye(5, dtype=np.float32)[:2], y=np.float32([[3], [1.5]]))
  values = models.build_evaluation(model)(weights, data)
  assert values == {'loss': pytest.approx((8 + 0.125) / 2), 'is_close': 0.5}
  # '<lambda>' is no name that TFF takes.
  assert models.from_keras(dense(1), cubed, [lambda y, z: y - z]).metric_names == ('loss', 'lambda')


def test_a_metric_keeps_its_name_when_another_model_has_it_too():
  for _ in range(2):  # Keras itself calls the second one 'mean_absolute_error_1'.
    model = models.from_keras(dense(1), 'mse', ['MeanAbsoluteError', squared], y_spec=NUMBERS)
    assert model.metric_names == ('loss', 'mean_absolute_error', 'squared')


def lstm():
  return keras.Sequential([keras.Input([4, 3]), keras.layers.LSTM(1, return_sequences=True)])


def squared(y_true, y_pred):
  return tf.math.squared_difference(y_true, y_pred)


def mean(y_true, y_pred):
  return tf.reduce_mean(y_pred)


def test_only_targets_of_a_known_form_are_tried_with_probabilities():
  def nothing(p, y):
    tried.append(p)
    return p[:, 0] * np.nan

  tried = []
  column = tf.TensorShape([None, 1])
  unknown = tf.TensorShape(None)
  strings = tf.TensorSpec([None], tf.string)
  for form in ((PAIRS, column), (PAIRS, unknown), (tf.TensorSpec(None), column), (strings, column)):
    keras_measures._check_alone(nothing, '', *form)
  assert len(tried) == 1 + 3  # All examples, and each alone.
  assert 0 < np.min(tried[0]) < np.max(tried[0]) < 1


NUMBERS = tf.TensorSpec([None], tf.float32)
CLASSES = tf.TensorSpec([None], tf.int32)
PAIRS = tf.TensorSpec([None, 2], tf.float32)


class Refused(typing.NamedTuple):
  """A model with its loss, metrics and targets, and why it cannot be trained."""

  message: str
  build: Callable
  loss: object
  metrics: Sequence[object] = ()
  y_spec: tf.TensorSpec | None = None


WHAT_CLIENTS_CANNOT_SUM_UP = [
  Refused(
    "'precision_at_recall' is neither a mean over examples nor one of these",
    dense(1),
    'mse',
    metrics=[metrics_of.PrecisionAtRecall(0.5, name='precision_at_recall')],
  ),
  Refused("two metrics are called 'mae'", dense(1), 'mse', metrics=['mae', 'mae']),
]
WHAT_COUNTS_OVER_A_WHOLE_BATCH = [
  Refused('gives one number for a batch', dense(1), mean),
  Refused('_class=-1', dense(4), losses.SparseCategoricalCrossentropy(ignore_class=-1)),
  Refused(
    'has ignore_class=0',
    dense(4),
    SPARSE,
    metrics=[metrics_of.SparseCategoricalCrossentropy(ignore_class=0)],
  ),
  Refused("reduction='sum'", dense(4), losses.SparseCategoricalCrossentropy(reduction='sum')),
]
TARGETS_THAT_WOULD_BE_BROADCAST = [
  Refused(r'the rest .* targets \[B\] and an output \[B, 4, 1\]', lstm, 'mse', y_spec=NUMBERS),
  Refused("the loss 'squared' of an example depends on the rest", lstm, squared, y_spec=NUMBERS),
  Refused(r'broadcast targets \[B, 2\] with an output \[B, 1\]', dense(1), 'mse', y_spec=PAIRS),
  Refused(
    r"'squared' fails for targets \[B, 2\] and an output \[B, 3", dense(3), squared, y_spec=PAIRS
  ),
  Refused(r'targets \[B, 1\] and an output \[B\]', flat, 'mse', y_spec=tf.TensorSpec([None, 1])),
  Refused(r'fails for targets \[B\] and an output', dense(4, (3, 5)), SPARSE, y_spec=CLASSES),
  Refused(
    "the metric 'categorical_accuracy' of an example",
    dense(4),
    SPARSE,
    metrics=['categorical_accuracy'],
    y_spec=CLASSES,
  ),
]


@pytest.mark.parametrize(
  'refused',
  WHAT_CLIENTS_CANNOT_SUM_UP + WHAT_COUNTS_OVER_A_WHOLE_BATCH + TARGETS_THAT_WOULD_BE_BROADCAST,
)
def test_what_is_no_mean_over_examples_each_with_its_own_target_is_refused(refused):
  with pytest.raises(ValueError, match=refused.message):
    models.from_keras(refused.build, refused.loss, refused.metrics, y_spec=refused.y_spec)
