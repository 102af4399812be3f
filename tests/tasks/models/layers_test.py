"""Shapes of layers with a client axis; `batched_clients_test` has their values and gradients."""

import tensorflow as tf

from tff_adaptive_tasks.models import layers


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
