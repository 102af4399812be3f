"""Gradients times a factor: always the factor times the gradient, and mostly without a product."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.client import scaled_gradients

X = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
W = np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32)
RATE = 1e-3


@tf.custom_gradient
def clipped(x):
  """The identity; what comes back is clipped, so that twice as much is not twice as large."""
  return x, lambda above: tf.clip_by_value(above, -0.05, 0.05)


def dense(w, x=X):
  return tf.reduce_mean(tf.square(tf.tanh(tf.constant(x) @ w)))


LINEAR = {'dense': dense, 'float64': lambda w: tf.cast(dense(w), tf.float64)}
OTHERS = {
  'a gradient of its own': lambda w: dense(clipped(w)),
  'the same in a function': lambda w: tf.function(lambda w: dense(clipped(w)))(w),
  'the same in a branch': lambda w: tf.cond(
    w[0, 0] < 9, lambda: dense(clipped(w)), lambda: dense(w)
  ),
  'float16': lambda w: tf.cast(dense(tf.cast(w, tf.float16), X.astype(np.float16)), tf.float32),
  'a loss of 16 bits': lambda w: tf.cast(dense(w), tf.bfloat16),
}


def gradients(loss, factor, start=W):
  found, others = scaled_gradients.gradients(lambda: (loss(start), 'else'), (start,), factor)
  assert others == 'else'
  return found[0]


def in_a_graph(loss, factor):
  """The gradient, and the operations that multiply something of the weights' shape by a scalar."""
  function = tf.function(lambda w: gradients(loss, factor, w), autograph=False)
  graph = function.get_concrete_function(tf.TensorSpec(W.shape, tf.float32)).graph
  products = [
    operation.name
    for operation in graph.get_operations()
    if operation.type == 'Mul'
    and operation.outputs[0].shape == W.shape
    and [] in [i.shape for i in operation.inputs]
  ]
  return function(tf.constant(W)).numpy(), products


@pytest.mark.parametrize('name', [*LINEAR, *OTHERS])
def test_it_is_the_factor_times_the_gradient(name):
  loss = {**LINEAR, **OTHERS}[name]
  plain, _ = in_a_graph(loss, None)
  assert np.any(plain)
  found, products = in_a_graph(loss, tf.constant(RATE))
  np.testing.assert_allclose(found, RATE * plain, rtol=1e-5, atol=1e-9)
  assert bool(products) == (name in OTHERS)


def test_a_loss_of_each_client_is_differentiated_by_itself():
  def losses(w):
    return tf.reduce_mean(tf.square(tf.tanh(tf.constant(X) @ w)), axis=0)

  plain, _ = in_a_graph(losses, None)
  found, products = in_a_graph(losses, tf.constant(RATE))
  np.testing.assert_allclose(found, RATE * plain, rtol=1e-5)
  assert not products


def test_eagerly_it_is_a_product():
  w = tf.constant(W)
  plain = gradients(dense, None, w)
  np.testing.assert_array_equal(gradients(dense, tf.constant(RATE), w), RATE * plain)


def test_rows_and_weights_without_a_gradient_stay_what_they_are():
  def rows(w):
    return dense(clipped(tf.gather(w, [0, 2])), X[:, :2])

  plain = gradients(rows, None, tf.constant(W))
  found = gradients(rows, tf.constant(RATE), tf.constant(W))
  assert isinstance(found, tf.IndexedSlices)
  np.testing.assert_array_equal(found.values, RATE * plain.values)
  np.testing.assert_array_equal(found.indices, [0, 2])
  assert gradients(lambda w: dense(W), tf.constant(RATE), tf.constant(W)) is None
