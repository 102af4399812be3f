"""Losses and metrics against what Keras's own `evaluate` gives."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import models

keras = tf.keras
losses = keras.losses
RNG = np.random.default_rng(0)


def dense(units, shape=(5,), activation=None):
  return lambda: keras.Sequential([keras.Input(shape), keras.layers.Dense(units, activation)])


CASES = {
  'classes': (
    dense(4),
    losses.SparseCategoricalCrossentropy(from_logits=True),
    ['accuracy', keras.metrics.SparseTopKCategoricalAccuracy(2, name='top_2')],
    RNG.integers(0, 4, 11).astype(np.int32),
  ),
  'one hot': (
    dense(4, activation='softmax'),
    'categorical_crossentropy',
    ['accuracy', 'mae'],
    np.eye(4, dtype=np.float32)[RNG.integers(0, 4, 11)],
  ),
  'yes or no': (
    dense(1, activation='sigmoid'),
    'binary_crossentropy',
    ['accuracy'],
    RNG.integers(0, 2, 11).astype(np.float32),
  ),
  'numbers': (
    dense(1),
    losses.Huber(0.7),
    ['mean_absolute_error', keras.metrics.MeanSquaredError()],
    RNG.normal(size=11).astype(np.float32),
  ),
  'labels in a column': (
    dense(4),
    losses.SparseCategoricalCrossentropy(from_logits=True),
    ['accuracy'],
    RNG.integers(0, 4, (11, 1)).astype(np.int32),
  ),
  'an output without dimensions': (
    lambda: keras.Sequential([keras.Input([5]), keras.layers.Dense(1), keras.layers.Reshape([])]),
    'mse',
    ['mean_absolute_error'],
    RNG.normal(size=11).astype(np.float32),
  ),
  'a number at each step': (
    dense(1, (3, 5)),
    'mse',
    [],
    RNG.normal(size=(11, 3)).astype(np.float32),
  ),
  'sequences': (
    dense(4, (3, 5), 'softmax'),
    'sparse_categorical_crossentropy',
    ['accuracy'],
    RNG.integers(0, 4, (11, 3)).astype(np.int32),
  ),
}


@pytest.mark.parametrize('case', CASES)
def test_values_are_those_of_keras(case):
  build, loss, metrics, y = CASES[case]
  spec = tf.TensorSpec([None, *y.shape[1:]], y.dtype)
  model = models.from_keras(build, loss, metrics, seed=2, y_spec=spec)
  x = (
    np.random.default_rng(1).normal(size=(11, *model.input_spec['x'].shape[1:])).astype(np.float32)
  )
  found = models.build_evaluation(model, batch_size=4)(
    model.initial_weights[0], collections.OrderedDict(x=x, y=y)
  )
  reference = model.to_keras(model.initial_weights[0])
  reference.compile(loss=loss, metrics=metrics)
  expected = reference.evaluate(x, y, verbose=0, return_dict=True)
  assert len(found) == len(expected)
  for value, wanted in zip(found.values(), expected.values()):
    assert value == pytest.approx(wanted, rel=1e-5)


def test_targets_have_the_form_that_the_loss_takes():
  sparse = models.from_keras(dense(4, (3, 5)), 'sparse_categorical_crossentropy')
  assert sparse.input_spec['y'] == tf.TensorSpec([None, 3], tf.int32)
  numbers = models.from_keras(dense(2), 'mse')
  assert numbers.input_spec['y'] == tf.TensorSpec([None, 2], tf.float32)


def test_functions_of_ones_own_are_losses_and_metrics():
  def cubed(y_true, y_pred):
    return tf.abs(y_true - y_pred) ** 3

  def is_close(y_true, y_pred):
    return tf.abs(y_true - y_pred)[:, 0] < 1

  model = models.from_keras(dense(1), cubed, [is_close])
  weights = [np.ones([5, 1], np.float32), np.zeros(1, np.float32)]
  data = collections.OrderedDict(x=np.eye(5, dtype=np.float32)[:2], y=np.float32([[3], [1.5]]))
  found = models.build_evaluation(model)(weights, data)
  assert found == {'loss': pytest.approx((8 + 0.125) / 2), 'is_close': 0.5}


def test_a_metric_keeps_its_name_when_another_model_has_it_too():
  for _ in range(2):  # Keras itself calls the second one 'mean_absolute_error_1'.
    model = models.from_keras(dense(1), 'mse', ['MeanAbsoluteError'])
    assert model.metric_names == ('loss', 'mean_absolute_error')


@pytest.mark.parametrize(
  'loss, metrics, message',
  [
    ('mse', ['AUC'], "'auc' is no mean over examples"),
    ('mse', [keras.metrics.Precision()], 'no mean over examples'),
    ('mse', ['colour'], "Keras has no metric 'colour'"),
    ('mse', ['mae', 'mae'], "two metrics are called 'mae'"),
    ('colour', [], "Keras has no loss 'colour'"),
  ],
)
def test_what_clients_cannot_sum_up_is_refused(loss, metrics, message):
  with pytest.raises(ValueError, match=message):
    models.from_keras(dense(1), loss, metrics)


def test_a_loss_of_a_whole_batch_is_refused():
  with pytest.raises(ValueError, match='gives one number for a batch'):
    models.from_keras(dense(1), lambda y_true, y_pred: tf.reduce_mean(y_pred))


def lstm():
  layers = [keras.layers.LSTM(1, return_sequences=True)]
  return keras.Sequential([keras.Input([4, 3]), *layers])


def flat():
  return keras.Sequential([keras.Input([5]), keras.layers.Dense(1), keras.layers.Reshape([])])


SPARSE = losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize(
  'build, loss, y, dtype, message',
  [
    (lstm, 'mse', [None], tf.float32, r'another value .* targets \[B\] and an output \[B, 4, 1\]'),
    (lstm, losses.Huber(), [None], tf.float32, r'another value in a batch than alone'),
    (dense(1), 'mse', [None, 2], tf.float32, r'broadcast targets \[B, 2\] with an output \[B, 1\]'),
    (dense(3), 'mse', [None], tf.float32, r'targets \[B\] and an output \[B, 3\]'),
    (flat, 'mse', [None, 1], tf.float32, r'targets \[B, 1\] and an output \[B\]'),
    (
      dense(4, (3, 5)),
      SPARSE,
      [None],
      tf.int32,
      r'fails for targets \[B\] and an output',
    ),
    (dense(4), SPARSE, [None, 3], tf.int32, r'fails for targets \[B, 3\] and an output \[B, 4'),
  ],
)
def test_targets_that_would_be_broadcast_are_refused(build, loss, y, dtype, message):
  with pytest.raises(ValueError, match=message):
    models.from_keras(build, loss, y_spec=tf.TensorSpec(y, dtype))


def test_functions_are_refused_where_an_example_depends_on_others():
  def squared(y_true, y_pred):
    return tf.math.squared_difference(y_true, y_pred)

  spec = tf.TensorSpec([None], tf.float32)
  assert models.from_keras(dense(1), squared, [squared], y_spec=spec).metric_names[1] == 'squared'
  with pytest.raises(ValueError, match="the loss 'squared' gives an example another value in a"):
    models.from_keras(lstm, squared, y_spec=spec)
  spec, classes = models.from_keras(lstm, 'mse').input_spec['y'], tf.TensorSpec([None], tf.int32)
  assert spec.shape == [None, 4, 1]
  with pytest.raises(ValueError, match="the metric 'categorical_accuracy' gives an example"):
    models.from_keras(dense(4), SPARSE, ['categorical_accuracy'], y_spec=classes)
  with pytest.raises(
    ValueError, match=r"'squared' fails for targets \[B, 2\] and an output \[B, 3"
  ):
    models.from_keras(dense(3), squared, y_spec=tf.TensorSpec([None, 2], tf.float32))


@pytest.mark.parametrize(
  'loss, metrics, message',
  [
    (losses.SparseCategoricalCrossentropy(ignore_class=-1), [], 'has ignore_class=-1'),
    (SPARSE, [keras.metrics.SparseCategoricalCrossentropy(ignore_class=0)], 'has ignore_class=0'),
    (losses.SparseCategoricalCrossentropy(reduction='sum'), [], "has reduction='sum'"),
  ],
)
def test_what_counts_over_a_whole_batch_is_refused(loss, metrics, message):
  with pytest.raises(ValueError, match=message):
    models.from_keras(dense(4), loss, metrics)
