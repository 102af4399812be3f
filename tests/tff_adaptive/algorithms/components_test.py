"""What the processes share: weights of clients in the mean."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.algorithms import components
from tff_adaptive.client import local_training


def inverse_loss(metrics):
  total = metrics['loss'][..., 0]
  count = metrics['loss'][..., 1]
  return count / total  # 0 / 0 for a client that took no step.


@pytest.mark.parametrize(
  ('weighting', 'expected'), [('uniform', [1, 0]), ('examples', [7, 0]), (inverse_loss, [0.5, 0])]
)
def test_a_client_that_is_not_used_has_no_weight_whatever_a_function_gives(weighting, expected):
  trained = local_training.Trained(
    *[()] * 4,
    num_examples=tf.constant([7.0, 3.0]),
    is_used=tf.constant([1.0, 0.0]),
    diverged=(),
    squared_norm=(),
    metrics={'loss': tf.constant([[14.0, 7.0], [0.0, 0.0]])},
  )
  np.testing.assert_array_equal(components.client_weight(weighting, trained), expected)
