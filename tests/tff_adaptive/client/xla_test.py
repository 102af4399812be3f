"""Which models XLA is given."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive.client import xla


def test_examples_of_unknown_shape_are_refused_by_their_spec():
  model = models.Model(
    initial_weights=[np.ones([3], np.float32)],
    forward=lambda weights, x, training, seed: tf.reduce_sum(x, 1, keepdims=True) * weights[0],
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, None], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  with pytest.raises(ValueError, match=r'x_spec TensorSpec\(shape=\(None, None\).*leave xla out'):
    xla.check(model)
