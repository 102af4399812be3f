"""Models with constant tensors train as those with NumPy arrays in their place."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import algorithms, engine, models
from tff_adaptive.client import Batching, ClientTraining, client_arrays

keras = tf.keras
RNG = np.random.default_rng(0)
# TensorFlow treats tensors of up to 128 numbers and larger ones differently.
SIZE = 150
X = (3 + RNG.normal(size=(12, SIZE)) * np.arange(1, SIZE + 1)).astype(np.float32)
Y = RNG.integers(3, size=12).astype(np.int32)
MEAN = X.mean(0)
SCALE = (1 / X.std(0)).astype(np.float32)
SPREAD = np.float32(0.01)
WEIGHTS = np.array([1.0, 2.0, 0.5], np.float32)


def _functional(hidden):
  """A builder of a Keras model of a layer or function between input and output."""

  def build():
    x = keras.Input([SIZE])
    # With a seed of its own: the layers before it may draw, or not.
    dense = keras.layers.Dense(3, kernel_initializer=keras.initializers.GlorotUniform(1))
    return keras.Model(x, dense(hidden()(x)))

  return build


def _adapted():
  layer = keras.layers.Normalization()
  layer.adapt(X)
  return layer


def _normal():
  return keras.layers.Lambda(lambda x: (x - MEAN) * SCALE)


def _lambda(constant):
  return lambda: keras.layers.Lambda(lambda x: (x - constant(MEAN)) * constant(SPREAD))


def _operation(constant):
  return lambda: lambda x: (x - constant(MEAN)) * constant(SPREAD)


def _loss(constant):
  weights = constant(WEIGHTS)

  def loss(y, z):
    return tf.gather(weights, y) * tf.nn.sparse_softmax_cross_entropy_with_logits(y, z)

  return loss


def _metric(constant):
  weights = constant(WEIGHTS)

  def largest(y, z):
    return tf.reduce_max(z * weights, -1)

  return largest


PLAIN = dict(build=_functional(_normal), loss=_loss(np.asarray), metric=_metric(np.asarray))
# By place, the parts with the constant, and the same with NumPy arrays.
PLACES = {
  'Normalization': (dict(build=_functional(_adapted)), {}),
  'Lambda': tuple(dict(build=_functional(_lambda(c))) for c in (tf.constant, np.asarray)),
  'operation': tuple(dict(build=_functional(_operation(c))) for c in (tf.constant, np.asarray)),
  'loss': (dict(loss=_loss(tf.constant)), {}),
  'metric': (dict(metric=_metric(tf.constant)), {}),
}
COHORT = [client_arrays(X[i : i + 6], Y[i : i + 6], i) for i in (0, 6)]
BATCHES = [[collections.OrderedDict(x=X[i : i + 6], y=Y[i : i + 6])] for i in (0, 6)]


def _model(build, loss, metric):
  return models.from_keras(build, loss, [metric], y_spec=tf.TensorSpec([None], tf.int32))


def _own(scale):
  """A `models.Model` whose parts use these constants."""
  return models.Model(
    initial_weights=[np.zeros([SIZE, 3], np.float32)],
    forward=lambda weights, x, training, seed: (x * scale) @ weights[0],
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, SIZE]),
    y_spec=tf.TensorSpec([None], tf.int32),
    metrics={'largest': lambda z, y: (tf.reduce_max(z, -1) + scale[0], None)},
    client_axis=True,
  )


def _round(model, batching, **context):
  process = algorithms.build_fed_avg(
    model, client_learning_rate=0.1, training=ClientTraining(batching=batching)
  )
  with engine.graph_context(**context):
    output = process.next(process.initialize(), BATCHES if batching is None else COHORT)
  return output.state.global_model_weights, output.metrics['client_work']['train']


@pytest.mark.parametrize('place', PLACES)
@pytest.mark.exhaustive
def test_a_keras_model_with_constants_trains(place):
  with_constants, without = ({**PLAIN, **parts} for parts in PLACES[place])
  if place == 'Normalization':
    batching = Batching(4)
  else:
    batching = None
  lifted = _round(_model(**with_constants), batching)
  wanted = _round(_model(**without), batching)
  engines.assert_same(lifted, wanted, rtol=1e-4, atol=1e-5)
  assert np.abs(lifted[0].trainable[1]).max() > 0  # It did train.


@pytest.mark.exhaustive
def test_clients_with_constants_train_together():
  parts = {**PLAIN, 'build': _functional(_adapted), 'loss': _loss(tf.constant)}
  one_by_one = _round(_model(**parts), Batching(4), clients_per_step=1)
  together = _round(_model(**parts), Batching(4), clients_per_step=2)
  engines.assert_same(together, one_by_one, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('batching', [None, Batching(4)], ids=['datasets', 'arrays'])
@pytest.mark.sample(1)
def test_a_model_of_functions_with_constants_trains(batching):
  lifted = _round(_own(tf.constant(SCALE)), batching)
  wanted = _round(_own(SCALE), batching)
  engines.assert_same(lifted, wanted, rtol=1e-5, atol=1e-6)
  assert np.abs(lifted[0].trainable[0]).max() > 0


@pytest.mark.exhaustive
def test_tffs_own_algorithms_train_a_keras_model_with_constants():
  parts = {'build': _functional(_adapted), 'loss': _loss(tf.constant), 'metric': PLAIN['metric']}
  results = []
  for model in (_model(**parts), _model(**PLAIN)):
    process = tff.learning.algorithms.build_weighted_fed_avg(
      model, tff.learning.optimizers.build_sgdm(0.1)
    )
    with engine.graph_context():
      results.append(process.next(process.initialize(), BATCHES).state.global_model_weights)
  engines.assert_same(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('place', ['Lambda', 'loss'])
def test_a_constant_outside_a_model_function_is_named(place):
  shift = tf.constant(MEAN if place == 'Lambda' else 0.0)

  class Loss(keras.losses.Loss):
    def call(self, y_true, y_pred):
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y_true, y_pred)
      return losses + tf.reduce_sum(shift)

  def model_fn():
    layers = [keras.Input([SIZE]), keras.layers.Dense(3)]
    if place == 'Lambda':
      layers.insert(1, keras.layers.Lambda(lambda x: x - shift))
    return tff.learning.models.from_keras_model(
      keras.Sequential(layers),
      loss=Loss(),
      input_spec=collections.OrderedDict(
        x=tf.TensorSpec([None, SIZE]), y=tf.TensorSpec([None], tf.int32)
      ),
    )

  with pytest.raises(ValueError, match='make it in the model function, or give a NumPy array'):
    algorithms.build_fed_avg(model_fn, client_learning_rate=0.1)
