"""Layers with a client axis are the layers of each client."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive_tasks.models import layers


@pytest.mark.parametrize('padding', ['VALID', 'SAME'])
@pytest.mark.parametrize('reach, stride', [((3, 3), 1), ((7, 7), 2), ((2, 4), 3), ((1, 1), 1)])
def test_a_convolution_with_a_kernel_for_each_client(reach, stride, padding):
  rng = np.random.default_rng(0)
  x = tf.constant(rng.standard_normal([3, 2, 9, 11, 4]), tf.float32)
  kernel = tf.constant(rng.standard_normal([3, *reach, 4, 5]), tf.float32)
  bias = tf.constant(rng.standard_normal([3, 5]), tf.float32)

  def weights(y):
    return tf.reshape(tf.cast(tf.range(tf.size(y)) % 17, y.dtype), y.shape)

  def gradients(convolve):
    with tf.GradientTape() as tape:
      tape.watch([x, kernel, bias])
      y = convolve(x, kernel, bias, stride, padding)
      # Each output has a weight of its own, so that none can stand for another.
      total = tf.reduce_sum(y * weights(y))
    return y, *tape.gradient(total, [x, kernel, bias])

  def each(x, kernel, bias, *how):
    return tf.stack([tf.nn.conv2d(x[i], kernel[i], *how) + bias[i] for i in range(3)])

  expected, found = gradients(each), gradients(layers.conv)
  for a, b in zip(found, expected):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max())


def test_a_convolution_of_an_unknown_number_of_examples_keeps_what_is_known():
  @tf.function(
    input_signature=[
      tf.TensorSpec([2, None, 8, 8, 3]),
      tf.TensorSpec([2, 3, 3, 3, 5]),
    ]
  )
  def shapes(x, kernel):
    y = layers.max_pool(layers.conv(x, kernel), 2, 2)
    assert y.shape[2:] == [3, 3, 5]
    assert layers.flatten(y).shape[2:] == [45]
    return y

  assert shapes(tf.ones([2, 4, 8, 8, 3]), tf.ones([2, 3, 3, 3, 5])).shape == [2, 4, 3, 3, 5]
