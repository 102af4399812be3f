"""Both recurrences against Keras's cell in double precision, the compiled one by its definition."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import compiler
from tff_adaptive.kernels import library, lstm
from tff_adaptive_tasks.models import lstm as layer

pytestmark = compiler.NEEDED


def draw(*shape, scale=1.0, seed=0):
  return np.random.default_rng([seed, *shape]).normal(size=shape) * scale


def keras_recurrence(z, recurrent, steps):
  """The recurrence by Keras's cell: its kernel is the identity, so that its input is z."""
  units = recurrent.shape[0]
  cell = tf.keras.layers.LSTMCell(units, dtype=z.dtype)
  cell.build([None, 4 * units])
  cell.kernel = tf.eye(4 * units, dtype=z.dtype)
  cell.recurrent_kernel = recurrent
  cell.bias = tf.zeros(4 * units, z.dtype)
  rows = tf.split(z, steps)
  state = [tf.zeros([rows[0].shape[0], units], z.dtype)] * 2
  outputs = []
  for row in rows:
    h, state = cell(row, state)
    outputs.append(h)
  return tf.concat(outputs, 0)


def value_and_gradients(function, arguments, upstream):
  with tf.GradientTape() as tape:
    tape.watch(arguments)
    value = function(*arguments)
    total = tf.reduce_sum(value * upstream)
  return [value, *tape.gradient(total, arguments)]


def distance(actual, expected):
  """The largest error, of the largest value."""
  return np.abs(np.asarray(actual, np.float64) - expected).max() / np.abs(expected).max()


def unrolled(z, r, steps):
  """The recurrence by TensorFlow's operations, as the tasks' layer has it."""
  x = tf.reshape(z, [steps, -1, z.shape[-1]])
  width = z.shape[-1]
  h = layer.lstm(x - 0.5, tf.eye(width), r, tf.fill([width], 0.5))
  return tf.reshape(h, [-1, h.shape[-1]])


# Sizes beside and between those of blocks (64 columns), vectors (16 or 8) and rows (4).
@pytest.mark.parametrize('recurrence', [lstm.recurrence, unrolled])
@pytest.mark.parametrize(
  'steps, batch, units', [(1, 1, 1), (3, 2, 5), (4, 4, 33), (5, 5, 64), (2, 9, 20)]
)
def test_values_and_gradients_are_those_of_keras(recurrence, steps, batch, units):
  z = draw(steps * batch, 4 * units)
  r = draw(units, 4 * units, scale=units**-0.5)
  upstream = draw(steps * batch, units, seed=1)
  exact = value_and_gradients(
    lambda z, r: keras_recurrence(z, r, steps), [tf.constant(z), tf.constant(r)], upstream
  )
  single = [tf.constant(a, tf.float32) for a in (z, r)]
  actual = value_and_gradients(
    lambda z, r: recurrence(z, r, steps), single, tf.constant(upstream, tf.float32)
  )
  for a, b in zip(actual, exact):
    if steps == 1 and not np.any(b):
      assert not np.any(a)  # R counts from the second step on.
    else:
      assert a.shape == b.shape
      assert distance(a, b) < 2e-6


def test_gates_far_from_zero_are_exact_and_nothing_overflows():
  z = np.concatenate([np.linspace(-100, 100, 401), np.linspace(-1, 1, 401), [1e-30, -1e9, 1e9]])
  z = z.astype(np.float32)
  h = _one_step(z)
  gate = 1 / (1 + np.exp(-z.astype(np.float64)))
  exact = gate * np.tanh(gate * np.tanh(z.astype(np.float64)))
  np.testing.assert_allclose(h, exact, rtol=1e-6, atol=1e-37)
  # What is not a number stays none, and infinities are limits.
  h = _one_step(np.array([np.inf, -np.inf, np.nan], np.float32))
  np.testing.assert_allclose(h, [np.tanh(1), 0, np.nan], rtol=1e-6, atol=1e-37)
  others = np.array([0x7FC00001, 0x7FFFFFFF, 0xFFC001FF, 0x7F800001], np.uint32)
  assert np.isnan(_one_step(others.view(np.float32))).all()


def _one_step(values):
  """h of one step whose four gates have the same value each."""
  z = tf.constant(np.tile(values, 4)[None])
  return lstm.recurrence(z, tf.zeros([len(values), 4 * len(values)]), 1)[0].numpy()


def test_a_client_axis_is_one_recurrence_a_client_to_the_bit():
  steps = 5
  batch = 3
  units = 20
  clients = 4
  z = tf.constant(draw(clients, steps * batch, 4 * units), tf.float32)
  r = tf.constant(draw(clients, units, 4 * units, scale=0.2), tf.float32)
  upstream = tf.constant(draw(clients, steps * batch, units, seed=1), tf.float32)

  def run(z, r):
    return lstm.recurrence(z, r, steps)

  together = value_and_gradients(run, [z, r], upstream)
  for k in range(clients):
    alone = value_and_gradients(run, [z[k], r[k]], upstream[k])
    for a, b in zip(together[:2], alone):  # TensorFlow's product that gives R's is another one.
      np.testing.assert_array_equal(a[k], b)
    np.testing.assert_allclose(together[2][k], alone[2], rtol=1e-5, atol=1e-5)


def test_rows_do_not_depend_on_those_beside_them():
  z = draw(6, 7, 80).astype(np.float32)  # Time, rows, gates.
  r = tf.constant(draw(20, 80, scale=0.2), tf.float32)
  whole = tf.reshape(lstm.recurrence(tf.reshape(z, [-1, 80]), r, 6), [6, 7, 20])
  for rows in (slice(0, 1), slice(2, 5), slice(3, 7)):
    part = z[:, rows]
    alone = lstm.recurrence(tf.reshape(part, [-1, 80]), r, 6)
    np.testing.assert_array_equal(tf.reshape(alone, [6, -1, 20]), whole[:, rows])


def test_the_batch_size_may_be_unknown():
  @tf.function(input_signature=[tf.TensorSpec([None, 12])])
  def run(z):
    return lstm.recurrence(z, tf.ones([3, 12]), 2)

  assert run.get_concrete_function().output_shapes.as_list() == [None, 3]
  for batch in (0, 1, 4):
    assert run(tf.ones([2 * batch, 12])).shape == (2 * batch, 3)


def test_shapes_that_do_not_fit_and_other_numbers_than_float32_are_refused():
  operations = library.load()
  z = tf.ones([6, 12])
  r = tf.ones([3, 12])
  h, gates, c = operations.tff_adaptive_lstm(z=z, r=r, steps=2)
  for bad in (
    {'z': tf.ones([5, 12])},  # Not a multiple of the steps.
    {'z': tf.ones([6, 8])},
    {'z': tf.ones([2, 6, 12])},
    {'r': tf.ones([3, 11])},
    {'z': tf.ones([2, 6, 12]), 'r': tf.ones([3, 3, 12])},
    {'z': tf.ones([12]), 'r': tf.ones([12])},
  ):
    with pytest.raises(tf.errors.InvalidArgumentError, match='do not fit'):
      operations.tff_adaptive_lstm(**{'z': z, 'r': r, 'steps': 2, **bad})
  given = {'dh': h, 'r': r, 'gates': gates, 'c': c, 'steps': 2}
  for bad in ({'dh': h[:4]}, {'gates': gates[:4]}, {'c': c[:4]}, {'c': gates}, {'gates': c}):
    with pytest.raises(tf.errors.InvalidArgumentError, match='do not fit'):
      operations.tff_adaptive_lstm_grad(**{**given, **bad})
  with pytest.raises(TypeError, match='float32, not in float64'):
    lstm.recurrence(tf.ones([2, 4], tf.float64), tf.ones([1, 4], tf.float64), 2)
