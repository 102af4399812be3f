"""Initial weights; shapes with a client axis: `batched_clients_test` has values and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive_tasks.models import layers


def test_a_convolution_of_an_unknown_number_of_examples_keeps_what_is_known():
  @tf.function(input_signature=[tf.TensorSpec([2, None, 8, 8, 3]), tf.TensorSpec([2, 3, 3, 3, 5])])
  def shapes(x, kernel):
    y = layers.max_pool(layers.conv(x, kernel), 2, 2)
    assert y.shape[2:] == [3, 3, 5]
    assert layers.flatten(y).shape[2:] == [45]
    return y

  assert shapes(tf.ones([2, 4, 8, 8, 3]), tf.ones([2, 3, 3, 3, 5])).shape == [2, 4, 3, 3, 5]


def test_initial_weights_have_the_distributions_of_their_names():
  draw = layers.Initializer(3)
  assert np.ptp(draw.glorot_uniform(3, 3, 8, 40)) / 2 == pytest.approx((6 / 432) ** 0.5, rel=0.01)
  he = draw.he_normal(5, 5, 4, 50) / 0.02**0.5  # Of deviation 1, and cut off at 2 / 0.8796.
  assert (he.std(), he.max()) == (pytest.approx(1, rel=0.03), pytest.approx(2.274, rel=0.01))
  for wide in (draw.orthogonal(3, 5), draw.orthogonal(5, 3).T):
    np.testing.assert_allclose(wide @ wide.T, np.eye(3), atol=1e-6)
