"""Keras models as pure functions, against hand-written ones."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import closeness
from tff_adaptive import models
from tff_adaptive.models import keras_model, keras_names, model as model_lib

keras = tf.keras
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SEED = tf.constant([3, 4])


def perceptron():
  layers = [keras.layers.Dense(4, 'tanh'), keras.layers.Dense(3)]
  return keras.Sequential([keras.Input([5]), *layers])


def with_layers(*layers, shape=(5,)):
  """A builder that makes these layers anew: (type, arguments) each, and a dense one at the end."""

  def build():
    new_layers = [kind(**arguments) for kind, arguments in layers]
    return keras.Sequential([keras.Input(shape), *new_layers, keras.layers.Dense(3)])

  return build


def names_of(network):
  """The canonical names of the trainable weights."""
  return keras_names.canonical(network, network.trainable_variables)


def inputs(n=6, seed=0):
  return np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)


def gradients(model, weights, x, y):
  """Gradients of a batch with dropout, and the means of the metrics."""
  weights = tuple(map(tf.constant, weights))
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, means = model.loss_and_metrics(weights, x, y, seed=SEED)
  return [*map(tf.convert_to_tensor, tape.gradient(loss, weights)), means]


def test_initial_weights_are_a_function_of_the_seed_alone():
  first = models.from_keras(perceptron, LOSS, seed=1)
  tf.random.set_seed(77)
  tf.random.normal([3])
  again = models.from_keras(perceptron, LOSS, seed=1)
  for a, b in zip(first.initial_weights[0], again.initial_weights[0]):
    np.testing.assert_array_equal(a, b)
  kernels = []
  for seed in (1, 2):
    kernels += models.from_keras(perceptron, LOSS, seed=seed).initial_weights[0][::2]
  assert len({w.ravel()[:5].tobytes() for w in kernels}) == 4  # No two layers or seeds alike.


def test_a_seed_that_an_initializer_has_is_kept_and_one_that_draws_anew_is_refused():
  def dense(initializer):
    return with_layers((keras.layers.Dense, dict(units=4, kernel_initializer=initializer)))

  initializer = keras.initializers.GlorotNormal(seed=5)
  kernel = models.from_keras(dense(initializer), LOSS, seed=2).initial_weights[0][0]
  np.testing.assert_array_equal(kernel, keras.initializers.GlorotNormal(seed=5)([5, 4]))
  with pytest.raises(ValueError, match='draws others each time'):
    models.from_keras(dense(lambda shape, dtype=None: tf.random.normal(shape, dtype=dtype)), LOSS)


def test_names_of_layers_in_both_directions_do_not_depend_on_what_was_built_before():
  lstm = (keras.layers.Bidirectional, dict(layer=keras.layers.LSTM(2)))
  first = names_of(with_layers(lstm, shape=(4, 5))())
  again = names_of(with_layers(lstm, shape=(4, 5))())
  assert first == again
  assert first[0] == 'bidirectional/forward_lstm/lstm_cell/kernel'


def test_layers_of_one_name_in_two_blocks_have_names_of_their_own():
  blocks = [keras.Sequential([keras.layers.Dense(2, name='fc')], name=name) for name in 'ab']
  names = names_of(keras.Sequential([keras.Input([2]), *blocks]))
  assert names == ('fc/kernel', 'fc/bias', 'fc/kernel_1', 'fc/bias_1')


def test_a_weight_that_init_makes_has_the_name_of_its_layer():
  class Scale(keras.layers.Layer):
    def __init__(self):
      super().__init__()
      self.factor = self.add_weight('factor', [])  # Keras gives it no scope.

    def call(self, x):
      return self.factor * x

  layers = [Scale(), keras.layers.Dense(1), keras.Sequential([Scale()])]
  names = names_of(keras.Sequential([keras.Input([2]), *layers]))
  assert names == ('scale/factor', 'dense/kernel', 'dense/bias', 'scale_1/factor')


@pytest.mark.parametrize('name', ['Dropout', 'GaussianNoise', 'GaussianDropout', 'AlphaDropout'])
def test_what_a_layer_draws_comes_from_the_seed(name):
  option = {'GaussianNoise': 'stddev'}.get(name, 'rate')
  model = models.from_keras(with_layers((getattr(keras.layers, name), {option: 0.5})), LOSS)
  weights = model.initial_weights[0]
  x = inputs()
  first = model.forward(weights, x, True, SEED).numpy()
  again = model.forward(weights, x, True, SEED).numpy()
  np.testing.assert_array_equal(first, again)
  assert not np.array_equal(first, model.forward(weights, x, True, tf.constant([3, 5])))
  off = model.forward(weights, x, False, None).numpy()
  assert not np.array_equal(first, off)
  np.testing.assert_array_equal(off, model.forward(weights, x, True, None))
  np.testing.assert_allclose(off, x @ weights[0] + weights[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('noise_shape, columns', [(None, 5), ((None, 1), 1)])
def test_dropout_is_that_of_a_model_written_by_hand(noise_shape, columns):
  layer = keras.layers.Dropout, dict(rate=0.4, noise_shape=noise_shape)
  model = models.from_keras(with_layers(layer), LOSS)
  kernel, bias = model.initial_weights[0]
  mask = models.dropout(tf.ones([len(inputs()), columns]), 0.4, SEED, salt=1)
  assert len({row.tobytes() for row in mask.numpy()}) > 1
  wanted = mask * inputs() @ kernel + bias
  np.testing.assert_allclose(model.forward((kernel, bias), inputs(), True, SEED), wanted, 1e-5)
  with pytest.raises(ValueError, match=r'\(float32\), its weights are float64: leave mixed'):
    model.forward((np.float64(kernel), np.float64(bias)), inputs(), True, SEED)


def test_noise_has_the_mean_and_the_deviation_that_a_layer_asks_for():
  draws = keras_model._Draws(1)
  draws.restart(SEED)
  for moments, asked in (((3.0, 0.5), (3.0, 0.5)), ((0.0, 1.0), ())):
    drawn = draws.random_normal([20000], *asked).numpy()
    assert (drawn.mean(), drawn.std()) == pytest.approx(moments, abs=0.05)


def test_two_dropout_layers_and_two_calls_of_one_draw_different_masks():
  def build():
    shared = keras.layers.Dropout(0.5)
    x = keras.Input([50])
    outputs = [shared(x), shared(x), keras.layers.Dropout(0.5)(x)]
    return keras.Model(x, keras.layers.Dense(150)(keras.layers.Concatenate()(outputs)))

  model = models.from_keras(build, LOSS)
  weights = [np.eye(150, dtype=np.float32), np.zeros(150, np.float32)]
  masks = model.forward(weights, tf.ones([1, 50]), True, SEED).numpy().reshape(3, 50)
  assert set(masks.ravel()) == {0.0, 2.0}
  assert len({mask.tobytes() for mask in masks}) == 3
  assert len({int(model_lib.salted((3, 4), salt)[1]) for salt in range(50)}) == 50


def test_regularizers_become_the_penalty():
  l1 = keras.regularizers.L1(0.1)
  build = with_layers((keras.layers.Dense, dict(units=4, kernel_regularizer=l1)))
  model = models.from_keras(build, LOSS)
  weights = [w + 1 for w in model.initial_weights[0]]
  assert float(model.penalty(weights)) == pytest.approx(0.1 * np.abs(weights[0]).sum(), rel=1e-6)
  frozen = keras.layers.Dense, dict(units=4, kernel_regularizer=l1, trainable=False)
  for build in (perceptron, with_layers(frozen)):
    assert models.from_keras(build, LOSS).penalty is None


def test_batch_normalization_warns_and_treats_examples_alone():
  build = with_layers((keras.layers.BatchNormalization, {}))
  with pytest.warns(UserWarning, match='GroupNormalization or LayerNormalization') as warned:
    model = models.from_keras(build, LOSS)
  assert __file__ in [warning.filename for warning in warned]
  assert model.weight_names[:2] == ('batch_normalization/gamma', 'batch_normalization/beta')
  x = inputs()
  weights = model.initial_weights[0]
  trained = model.forward(weights, x, True, SEED)
  np.testing.assert_allclose(trained[:1], model.forward(weights, x[:1], True, SEED), 1e-5, 1e-6)
  np.testing.assert_array_equal(trained, model.forward(weights, x, False, None))


class InAList(keras.layers.Layer):
  """Holds its variables in a list and a dictionary."""

  def build(self, shape):
    self.parts = [self.add_weight(name=f'p{i}', shape=[shape[-1]]) for i in range(2)]
    self.by_name = {'c': self.add_weight(name='c', shape=[shape[-1]])}

  def call(self, x):
    return x * self.parts[0] + self.parts[1] * self.by_name['c']


def embedded():
  layers = [keras.layers.Embedding(11, 4), keras.layers.LSTM(5), keras.layers.Dense(3)]
  return keras.Sequential([keras.Input([5], dtype=tf.int32), *layers])


frozen = with_layers(
  (keras.layers.BatchNormalization, dict(trainable=False)),
  (keras.layers.Dense, dict(units=4, trainable=False)),
)


@pytest.mark.parametrize(
  'build, trainable', [(perceptron, 4), (with_layers((InAList, {})), 5), (embedded, 6), (frozen, 2)]
)
def test_gradients_are_those_of_keras_and_the_variables_are_put_back(build, trainable):
  with warnings.catch_warnings():  # What is frozen warns of nothing.
    warnings.simplefilter('error', UserWarning)
    model = models.from_keras(build, LOSS)
  assert len(model.weight_names) == trainable
  weights = [w + np.float32(0.1) for w in model.initial_weights[0]]
  x = inputs().astype(model.input_spec['x'].dtype.as_numpy_dtype) ** 2
  y = np.int32([0, 1, 2] * 2)
  reference = model.to_keras(weights)
  with tf.GradientTape() as tape:
    loss = LOSS(y, reference(x))
  wanted = tape.gradient(loss, reference.trainable_variables)
  for ours, gradient in zip(gradients(model, weights, x, y), wanted):
    closeness.assert_close(ours, tf.convert_to_tensor(gradient))
  layer = model._keras.layers[0]
  if isinstance(layer, InAList):
    assert all(isinstance(v, tf.Variable) for v in [*layer.parts, layer.by_name['c']])


class Counter(keras.layers.Layer):
  """Counts its calls."""

  def build(self, shape):
    self.count = self.add_weight(name='count', shape=[], trainable=False)

  def call(self, x):
    self.count.assign_add(1.0)
    return x


OUTSIDE = [tf.Variable(2.0, name=name) for name in 'ab']


def two_inputs():
  a = keras.Input([3])
  b = keras.Input([3])
  return keras.Model([a, b], keras.layers.Dense(2)(a + b))


@pytest.mark.parametrize(
  'build, message',
  [
    (lambda: keras.Sequential([keras.layers.Dense(3)]), 'does not know its input'),
    (with_layers((Counter, {})), 'changes its variables'),
    (with_layers((keras.layers.Lambda, {'function': lambda x: x * sum(OUTSIDE)})), 'a:0, b:0; '),
    (with_layers((keras.layers.LSTM, dict(units=2, dropout=0.5)), shape=(4, 2)), 'RandomUniform'),
    (with_layers((keras.layers.RandomContrast, dict(factor=0.1)), shape=(4, 4, 1)), 'no pure'),
    (with_layers((keras.layers.ActivityRegularization, dict(l2=0.1))), 'activity_regularizer'),
    (lambda: keras.Sequential([keras.Input([3]), keras.layers.ReLU()]), 'no trainable weights'),
    (two_inputs, '2 inputs and 1 outputs'),
    (with_layers((keras.layers.Dense, dict(units=2, kernel_constraint='non_neg'))), '(NonNeg)'),
    (with_layers((keras.layers.Masking, {}), shape=(4, 2)), 'carries a mask'),
    (with_layers((keras.layers.Dense, dict(units=2, dtype='mixed_bfloat16'))), "'mixed_bfloat16'"),
    (with_layers((keras.layers.ReLU, dict(dtype='mixed_float16'))), "build it under 'float32'"),
  ],
)
def test_models_that_are_no_pure_functions_are_refused(build, message):
  with pytest.raises(ValueError) as raised:
    models.from_keras(build, LOSS)
  assert message in str(raised.value)
  assert '\n' not in str(raised.value)


def test_a_model_in_place_of_a_builder_is_refused():
  model = perceptron()
  for build, words in ((model, 'without arguments'), (lambda: 3, 'int'), (lambda: model, 'before')):
    with pytest.raises((TypeError, ValueError), match=words):
      models.from_keras(build, LOSS)
