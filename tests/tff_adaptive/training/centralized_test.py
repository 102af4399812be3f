"""Centralised training against NumPy: full-batch steps of a linear softmax model."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import models, optimizers
from tff_adaptive.client import whole_client
from tff_adaptive.training import centralized
from tff_adaptive_tasks.models import layers

_RNG = np.random.default_rng(3)
_X = _RNG.normal(size=(40, 5)).astype(np.float32)
_Y = _RNG.integers(0, 3, 40).astype(np.int32)
_DATA = [whole_client.client_arrays(_X, _Y, 0)]


def _model():
  return models.Model(
    initial_weights=layers.perceptron_weights(1, [5, 3]),
    forward=lambda w, x, training, seed: layers.dense(x, *w),
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, 5], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
    metrics={'accuracy': models.accuracy},
  )


def _gradient(kernel, bias):
  scores = _X.astype(np.float64) @ kernel + bias
  p = np.exp(scores - scores.max(1, keepdims=True))
  p /= p.sum(1, keepdims=True)
  loss = -np.mean(np.log(p[np.arange(40), _Y]))
  d = (p - np.eye(3)[_Y]) / 40
  return loss, [_X.T.astype(np.float64) @ d, d.sum(0)]


def _train(epochs, batch_size=7, optimizer=None, seed=0):
  optimizer = optimizers.build_sgdm(0.1) if optimizer is None else optimizer
  process = centralized.CentralizedTraining(_model(), optimizer, batch_size=batch_size, seed=seed)
  state, losses = process.initialize(), []
  for _ in range(epochs):
    output = process.next(state, _DATA)
    state = output.state
    losses.append(float(output.metrics['train']['loss']))
  assert int(state.epoch) == epochs
  return state.global_model_weights.trainable, losses


@pytest.mark.parametrize(
  'optimizer',
  [optimizers.build_sgdm(0.1, momentum=0.9), optimizers.build_yogi(0.1, tau=1e-3)],
  ids=['sgdm', 'yogi'],
)
def test_full_batch_epochs_are_the_optimizers_steps(optimizer):
  expected, expected_losses = tuple(tf.constant(w) for w in _model().initial_weights[0]), []
  slots = optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in expected))
  for _ in range(5):
    loss, gradients = _gradient(*(np.float64(w) for w in expected))
    expected_losses.append(loss)
    slots, expected = optimizer.next(
      slots, expected, tuple(tf.constant(g, tf.float32) for g in gradients)
    )
  weights, losses = _train(5, 40, optimizer)
  np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
  for weight, other in zip(weights, expected):
    np.testing.assert_allclose(weight, other, rtol=2e-5, atol=2e-6)


def test_an_epoch_sees_every_example_once_and_seeds_decide_the_order():
  def weights(seed, epochs=1):
    return np.concatenate([np.ravel(w) for w in _train(epochs, seed=seed)[0]])

  np.testing.assert_array_equal(weights(1, 2), weights(1, 2))
  assert np.abs(weights(1) - weights(2)).max() > 1e-5
  # Steps of rate 0 see the initial model: the epoch's loss is the loss of all examples.
  _, (found,) = _train(1, optimizer=optimizers.build_sgdm(0.0))
  loss, _ = _gradient(*(np.asarray(w, np.float64) for w in _model().initial_weights[0]))
  np.testing.assert_allclose(found, loss, rtol=1e-5)
