"""Losses that are no mean over examples."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive_tasks import least_squares, stackoverflow
from tff_adaptive_tasks.models import language

TINY_TOKENS = np.array([[3, 1, 2], [1, 0, 0], [2, 3, 0]], np.int32)
TINY_X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


@pytest.mark.parametrize(
  'build, x, y',
  [
    (lambda: least_squares.build_model(0), TINY_X, TINY_X[:, 0]),
    (lambda: stackoverflow.build_tag_model(4, 3, 0), np.uint8(9 * abs(TINY_X)), np.eye(3)),
    (
      lambda: language.build_model(
        [np.eye(4, dtype=np.float32)], lambda weights, h, _: h, 3, {}, 'tff'
      ),
      TINY_TOKENS,
      np.roll(TINY_TOKENS, -1, 1) * [1, 1, 0],
    ),
  ],
)
def test_tffs_algorithms_train_the_same_loss(build, x, y):
  model, y = build(), tf.cast(y, build().input_spec['y'].dtype)
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  loss, _ = model.loss_and_metrics(weights, x, y)
  output = model.forward(weights, x, True, None)
  np.testing.assert_allclose(model.loss(output, y), loss, rtol=1e-6)
  weighted = model.loss(output, y, sample_weight=tf.constant([2.0, 0.0, 2.0]))
  kept = [0, 2]
  loss, means = model.loss_and_metrics(weights, x[kept], tf.gather(y, kept))
  np.testing.assert_allclose(weighted, loss, rtol=1e-6)
  # A batch filled up by an example that does not count.
  filled = model.loss_and_metrics(weights, x, y, shares=tf.constant([0.5, 0.0, 0.5]))
  np.testing.assert_allclose(filled[0], loss, rtol=1e-6)
  np.testing.assert_allclose(filled[1], means, rtol=1e-6)
