"""The LSTM layer equals Keras's; `batched_clients_test` has groups of clients."""

import numpy as np
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


def test_values_and_gradients_are_keras():
  arguments = (draw(T, B, N), draw(N, 4 * H), draw(H, 4 * H), draw(4 * H))
  upstream = draw(T, B, H, seed=1)
  ours = tf.function(
    lstm.lstm,
    input_signature=[tf.TensorSpec([T, None, N]), *map(tf.TensorSpec.from_tensor, arguments[1:])],
  )
  h, grads = value_and_gradients(ours, arguments, upstream)
  expected, expected_grads = value_and_gradients(keras_lstm, arguments, upstream)
  np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-6)
  for a, b in zip(grads, expected_grads):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
