"""Class weights in the training loss against NumPy and scikit-learn."""

import numpy as np
import pytest
import tensorflow as tf
from sklearn.utils import class_weight

import oracle
from tests.helpers import small_problem
from tff_adaptive import models

WEIGHTS = (0.5, 2.0, 7.0)


def losses_and_labels():
  model = small_problem.model()
  weights = tuple(map(tf.constant, oracle.unpack(small_problem.theta_0())))
  x, y = small_problem.clients()[1]
  losses = model.example_loss(model.forward(weights, x, False, None), y).numpy()
  return model, weights, x, y, losses


def test_the_training_loss_has_the_weights_and_metrics_do_not():
  model, weights, x, y, losses = losses_and_labels()
  weighted = models.with_class_weight(model, WEIGHTS)
  by_example = np.asarray(WEIGHTS)[y] * losses
  loss, means = weighted.loss_and_metrics(weights, x, y)
  np.testing.assert_allclose(loss, by_example.mean(), rtol=1e-6)
  np.testing.assert_allclose(means[0], losses.mean(), rtol=1e-6)
  loss, _ = weighted.loss_and_metrics(weights, x, y, training=False)
  np.testing.assert_allclose(loss, losses.mean(), rtol=1e-6)
  assert model.class_weights is None


def test_padding_has_no_part_in_the_weighted_loss():
  model, weights, x, y, losses = losses_and_labels()
  weighted = models.with_class_weight(model, WEIGHTS)
  shares = np.zeros(len(y), np.float32)
  shares[:2] = 0.5
  loss, _ = weighted.loss_and_metrics(weights, x, y, shares=tf.constant(shares))
  np.testing.assert_allclose(loss, (np.asarray(WEIGHTS)[y] * losses)[:2].mean(), rtol=1e-6)


def test_balanced_weights_are_those_of_scikit_learn():
  labels = np.repeat([0, 1, 2], [90, 6, 4])
  wanted = class_weight.compute_class_weight('balanced', classes=np.arange(3), y=labels)
  np.testing.assert_allclose(models.balanced_class_weights([90, 6, 4]), wanted)
  assert models.balanced_class_weights([90, 0, 10]) == pytest.approx((100 / 180, 0, 5))


@pytest.mark.parametrize(
  'weights, words', [((1, -1, 1), '0 or more'), ((1, np.nan, 1), 'finite numbers')]
)
def test_weights_that_are_no_weights_are_refused(weights, words):
  with pytest.raises(ValueError, match=words):
    models.with_class_weight(small_problem.model(), weights)


def test_targets_that_are_no_classes_are_refused():
  model = models.from_keras(
    lambda: tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(2)]), 'mse'
  )
  with pytest.raises(ValueError, match=r'class numbers \[B\]'):
    models.with_class_weight(model, WEIGHTS)
