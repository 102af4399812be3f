"""The LSTM layer equals Keras's, values and gradients, with and without a client axis."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive_tasks.models import lstm

T, B, N, H = 7, 3, 4, 5


def draw(*shape, seed=0):
  return tf.constant(np.random.default_rng([seed, *shape]).normal(size=shape), tf.float32)


def value_and_gradients(function, arguments, upstream):
  with tf.GradientTape() as tape:
    tape.watch(arguments)
    value = function(*arguments)
    total = tf.reduce_sum(value * upstream)
  return value, tape.gradient(total, arguments)


def keras_lstm(x, kernel, recurrent, bias):
  """Keras's equations run by Keras's cell, time first."""
  cell = tf.keras.layers.LSTMCell(H)
  cell.build([None, N])
  cell.kernel, cell.recurrent_kernel, cell.bias = kernel, recurrent, bias
  state = [tf.zeros([x.shape[1], H])] * 2
  outputs = []
  for x_t in tf.unstack(x):
    h, state = cell(x_t, state)
    outputs.append(h)
  return tf.stack(outputs)


@pytest.mark.parametrize('compiled', [False, True])
def test_values_and_gradients_are_keras(compiled):
  arguments = (draw(T, B, N), draw(N, 4 * H), draw(H, 4 * H), draw(4 * H))
  upstream = draw(T, B, H, seed=1)
  ours = tf.function(lstm.lstm) if compiled else lstm.lstm
  h, grads = value_and_gradients(ours, arguments, upstream)
  expected, expected_grads = value_and_gradients(keras_lstm, arguments, upstream)
  np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-6)
  for a, b in zip(grads, expected_grads):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_layer_is_the_keras_layer():
  layer = tf.keras.layers.LSTM(H, return_sequences=True, time_major=True)
  x = draw(T, B, N)
  layer(x)
  weights = [draw(*w.shape, seed=3) for w in layer.get_weights()]
  layer.set_weights(weights)
  np.testing.assert_allclose(lstm.lstm(x, *weights), layer(x), rtol=1e-5, atol=1e-6)


def test_a_client_axis_is_one_layer_a_client():
  g = 3
  arguments = (draw(g, T, B, N), draw(g, N, 4 * H), draw(g, H, 4 * H), draw(g, 4 * H))
  upstream = draw(g, T, B, H, seed=1)
  h, grads = value_and_gradients(lstm.lstm, arguments, upstream)
  assert h.shape == (g, T, B, H)
  for k in range(g):
    one, one_grads = value_and_gradients(lstm.lstm, tuple(a[k] for a in arguments), upstream[k])
    np.testing.assert_allclose(h[k], one, rtol=1e-5, atol=1e-6)
    for a, b in zip(grads, one_grads):
      np.testing.assert_allclose(a[k], b, rtol=1e-4, atol=1e-5)


def test_the_batch_size_may_be_unknown():
  @tf.function(input_signature=[tf.TensorSpec([T, None, N])])
  def run(x):
    return lstm.lstm(x, draw(N, 4 * H), draw(H, 4 * H), draw(4 * H))

  for batch in (1, 4):
    assert run(draw(T, batch, N)).shape == (T, batch, H)


def test_the_gradient_is_right_in_double_precision():
  x, k, r, b = (tf.cast(draw(*s), tf.float64) for s in ((4, 2, 3), (3, 8), (2, 8), (8,)))
  for position in range(4):
    arguments = [x, k, r, b]

    def one(v, position=position, arguments=arguments):
      return lstm.lstm(*arguments[:position], v, *arguments[position + 1 :])

    theory, numeric = tf.test.compute_gradient(one, [arguments[position]])
    np.testing.assert_allclose(theory[0], numeric[0], rtol=1e-4, atol=1e-6)
