"""Keras models as pure functions, against hand-written ones."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import models

keras = tf.keras
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SEED = tf.constant([3, 4])


def perceptron():
  layers = [keras.layers.Dense(4, 'tanh'), keras.layers.Dense(3)]
  return keras.Sequential([keras.Input([5]), *layers])


def with_layers(*layers, shape=(5,)):
  """A builder that makes these layers anew: (type, arguments) each, and a dense one at the end."""

  def build():
    made = [kind(**arguments) for kind, arguments in layers]
    return keras.Sequential([keras.Input(shape), *made, keras.layers.Dense(3)])

  return build


def inputs(n=6, seed=0):
  return np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32)


def by_hand(weights):
  """The perceptron with dropout as this project writes models."""

  def forward(weights, x, training, seed):
    hidden = tf.tanh(x @ weights[0] + weights[1])
    hidden = models.dropout(hidden, 0.4, seed if training else None, salt=1)
    return hidden @ weights[2] + weights[3]

  return models.Model(
    initial_weights=weights,
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, 5], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
    metrics={'accuracy': models.accuracy},
  )


def gradients(model, weights, x, y):
  """Gradients of a batch with dropout, and the means of the metrics."""
  weights = tuple(map(tf.constant, weights))
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, means = model.loss_and_metrics(weights, x, y, seed=SEED)
  return [*map(tf.convert_to_tensor, tape.gradient(loss, weights)), means]


def test_training_gives_the_numbers_of_the_same_model_written_by_hand():
  build = with_layers(
    (keras.layers.Dense, dict(units=4, activation='tanh')), (keras.layers.Dropout, dict(rate=0.4))
  )
  model = models.from_keras(build, LOSS, ['accuracy'], seed=1)
  twin = by_hand(model.initial_weights[0])
  given = [w + 0.1 for w in model.initial_weights[0]], inputs(), np.int32([0, 1, 2, 2, 1, 0])
  for found, wanted in zip(gradients(model, *given), gradients(twin, *given)):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_initial_weights_are_a_function_of_the_seed_alone():
  first = models.from_keras(perceptron, LOSS, seed=1)
  tf.random.set_seed(77)
  tf.random.normal([3])
  again = models.from_keras(perceptron, LOSS, seed=1)
  for a, b in zip(first.initial_weights[0], again.initial_weights[0]):
    np.testing.assert_array_equal(a, b)
  kernels = [
    w for s in (1, 2) for w in models.from_keras(perceptron, LOSS, seed=s).initial_weights[0][::2]
  ]
  assert len({w.ravel()[:5].tobytes() for w in kernels}) == 4  # No two layers or seeds alike.


def test_a_seed_that_an_initializer_has_is_kept():
  own = keras.initializers.GlorotNormal(seed=5)
  build = with_layers((keras.layers.Dense, dict(units=4, kernel_initializer=own)))
  first, second = (models.from_keras(build, LOSS, seed=s).initial_weights[0] for s in (1, 2))
  np.testing.assert_array_equal(first[0], second[0])
  np.testing.assert_array_equal(first[0], keras.initializers.GlorotNormal(seed=5)([5, 4]))


def test_an_initializer_that_draws_anew_each_time_is_refused():
  def draw(shape, dtype=None):
    return tf.random.normal(shape, dtype=dtype)

  build = with_layers((keras.layers.Dense, dict(units=4, kernel_initializer=draw)))
  with pytest.raises(ValueError, match='draws others each time'):
    models.from_keras(build, LOSS)


def test_names_of_layers_in_both_directions_do_not_depend_on_what_was_built_before():
  def build():
    return with_layers(
      (keras.layers.Bidirectional, dict(layer=keras.layers.LSTM(2))), shape=(4, 5)
    )()

  first, again = (models.from_keras(build, LOSS) for _ in range(2))
  assert first.weight_names == again.weight_names
  assert first.weight_names[0] == 'bidirectional/forward_lstm/lstm_cell/kernel'


@pytest.mark.parametrize(
  'layer',
  [
    (keras.layers.Dropout, dict(rate=0.5)),
    (keras.layers.Dropout, dict(rate=0.5, noise_shape=(None, 1))),
    (keras.layers.GaussianNoise, dict(stddev=1.0)),
    (keras.layers.GaussianDropout, dict(rate=0.5)),
    (keras.layers.AlphaDropout, dict(rate=0.5)),
  ],
)
def test_what_a_layer_draws_comes_from_the_seed(layer):
  model = models.from_keras(with_layers(layer), LOSS)
  weights, x = model.initial_weights[0], inputs()
  first, again = (model.forward(weights, x, True, SEED).numpy() for _ in range(2))
  np.testing.assert_array_equal(first, again)
  assert not np.array_equal(first, model.forward(weights, x, True, tf.constant([3, 5])))
  off = model.forward(weights, x, False, None).numpy()
  assert not np.array_equal(first, off)
  np.testing.assert_array_equal(off, model.forward(weights, x, True, None))
  np.testing.assert_allclose(off, x @ weights[0] + weights[1], rtol=1e-5, atol=1e-6)


def test_two_dropout_layers_and_two_calls_of_one_draw_different_masks():
  def build():
    shared, x = keras.layers.Dropout(0.5), keras.Input([50])
    outputs = [shared(x), shared(x), keras.layers.Dropout(0.5)(x)]
    return keras.Model(x, keras.layers.Dense(150)(keras.layers.Concatenate()(outputs)))

  model = models.from_keras(build, LOSS)
  weights = [np.eye(150, dtype=np.float32), np.zeros(150, np.float32)]
  masks = model.forward(weights, tf.ones([1, 50]), True, SEED).numpy().reshape(3, 50)
  assert set(masks.ravel()) == {0.0, 2.0}
  assert len({mask.tobytes() for mask in masks}) == 3


def test_regularizers_become_the_penalty():
  l1 = keras.regularizers.L1(0.1)
  build = with_layers((keras.layers.Dense, dict(units=4, kernel_regularizer=l1)))
  model = models.from_keras(build, LOSS)
  weights = [w + 1 for w in model.initial_weights[0]]
  assert float(model.penalty(weights)) == pytest.approx(0.1 * np.abs(weights[0]).sum(), rel=1e-6)
  assert models.from_keras(perceptron, LOSS).penalty is None


def test_batch_normalization_warns_and_treats_examples_alone():
  build = with_layers((keras.layers.BatchNormalization, {}))
  with pytest.warns(UserWarning, match='GroupNormalization or LayerNormalization instead') as first:
    model = models.from_keras(build, LOSS)
  # A command builds its task's model several times: the same words are shown once.
  with pytest.warns(UserWarning, match='BatchNormalization') as second:
    models.from_keras(build, LOSS)
  assert [str(w.message) for w in first] == [str(w.message) for w in second]
  assert model.weight_names[:2] == ('batch_normalization/gamma', 'batch_normalization/beta')
  x, weights = inputs(), model.initial_weights[0]
  trained = model.forward(weights, x, True, SEED)
  np.testing.assert_allclose(trained[:1], model.forward(weights, x[:1], True, SEED), 1e-5, 1e-6)
  np.testing.assert_array_equal(trained, model.forward(weights, x, False, None))


def test_frozen_layers_are_constants_and_warn_of_nothing():
  build = with_layers(
    (keras.layers.BatchNormalization, dict(trainable=False)),
    (keras.layers.Dense, dict(units=4, trainable=False)),
  )
  with warnings.catch_warnings():
    warnings.simplefilter('error', UserWarning)
    model = models.from_keras(build, LOSS)
  assert len(model.weight_names) == 2  # Of the last layer.
  exported = model.to_keras(model.initial_weights[0])
  np.testing.assert_array_equal(
    exported(inputs()), model.forward(model.initial_weights[0], inputs(), False, None)
  )


class InAList(keras.layers.Layer):
  """Holds its variables in a list and a dictionary."""

  def build(self, shape):
    self.parts = [self.add_weight(name=f'p{i}', shape=[shape[-1]]) for i in range(2)]
    self.by_name = {'c': self.add_weight(name='c', shape=[shape[-1]])}

  def call(self, x):
    return x * self.parts[0] + self.parts[1] * self.by_name['c']


def test_variables_in_collections_are_replaced_and_put_back():
  model = models.from_keras(with_layers((InAList, {})), LOSS)
  weights = [np.full(w.shape, 2.0, np.float32) for w in model.initial_weights[0]]
  expected = (inputs() * 2 + 4) @ weights[-2] + 2
  np.testing.assert_allclose(model.forward(weights, inputs(), False, None), expected, 1e-5, 1e-6)
  layer = model._keras.model.layers[0]
  assert all(isinstance(v, tf.Variable) for v in [*layer.parts, layer.by_name['c']])


def test_recurrent_and_embedding_layers_train():
  def build():
    layers = [keras.layers.Embedding(11, 4), keras.layers.LSTM(5), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input([6], dtype=tf.int32), *layers])

  model = models.from_keras(build, LOSS)
  x = np.random.default_rng(0).integers(0, 11, (9, 6)).astype(np.int32)
  y = (np.arange(9) % 3).astype(np.int32)
  reference = build()
  reference.set_weights(model.initial_weights[0])
  with tf.GradientTape() as tape:
    loss = LOSS(y, reference(x))
  wanted = tape.gradient(loss, reference.trainable_variables)
  for a, b in zip(gradients(model, model.initial_weights[0], x, y), wanted):
    np.testing.assert_allclose(a, tf.convert_to_tensor(b), rtol=1e-5, atol=1e-6)


class Counter(keras.layers.Layer):
  """Counts its calls."""

  def build(self, shape):
    self.count = self.add_weight(name='count', shape=[], trainable=False)

  def call(self, x):
    self.count.assign_add(1.0)
    return x


class Global(keras.layers.Layer):
  """Reads a variable that is none of its own."""

  variable = tf.Variable(2.0, name='somewhere')

  def call(self, x):
    return x * Global.variable


def two_inputs():
  a, b = keras.Input([3]), keras.Input([3])
  return keras.Model([a, b], keras.layers.Dense(2)(a + b))


@pytest.mark.parametrize(
  'build, message',
  [
    (lambda: keras.Sequential([keras.layers.Dense(3)]), 'does not know its input'),
    (with_layers((Counter, {})), 'changes its variables'),
    (with_layers((Global, {})), 'it reads somewhere'),
    (with_layers((keras.layers.LSTM, dict(units=2, dropout=0.5)), shape=(4, 2)), 'RandomUniform'),
    (with_layers((keras.layers.RandomContrast, dict(factor=0.1)), shape=(4, 4, 1)), 'no pure'),
    (with_layers((keras.layers.ActivityRegularization, dict(l2=0.1))), 'activity_regularizer'),
    (lambda: keras.Sequential([keras.Input([3]), keras.layers.ReLU()]), 'no trainable weights'),
    (two_inputs, '2 inputs and 1 outputs'),
    (with_layers((keras.layers.Dense, dict(units=2, kernel_constraint='non_neg'))), '(NonNeg)'),
    (with_layers((keras.layers.Masking, {}), shape=(4, 2)), 'carries a mask'),
    (with_layers((keras.layers.Dense, dict(units=2, dtype='mixed_bfloat16'))), "'mixed_bfloat16'"),
    (with_layers((keras.layers.ReLU, dict(dtype='mixed_float16'))), "under the policy 'float32'"),
  ],
)
def test_models_that_are_no_pure_functions_are_refused(build, message):
  with pytest.raises(ValueError) as raised:
    models.from_keras(build, LOSS)
  assert message in str(raised.value)
  assert '\n' not in str(raised.value)


def test_a_model_in_place_of_a_builder_is_refused():
  with pytest.raises(TypeError, match='give a function without arguments'):
    models.from_keras(perceptron(), LOSS)
  with pytest.raises(TypeError, match='returned int, not'):
    models.from_keras(lambda: 3, LOSS)
