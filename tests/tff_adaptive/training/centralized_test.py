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


def _oracle(name, epochs, rate=0.1, tau=1e-3, beta1=0.9, beta2=0.99):
  weights = [np.asarray(w, np.float64) for w in _model().initial_weights[0]]
  m = [np.zeros_like(w) for w in weights]
  v = [np.full_like(w, tau**2) for w in weights]
  losses = []
  for _ in range(epochs):
    loss, gradients = _gradient(*weights)
    losses.append(loss)
    for i, g in enumerate(gradients):
      if name == 'sgd':
        weights[i] = weights[i] - rate * g
      elif name == 'sgdm':
        m[i] = beta1 * m[i] + g
        weights[i] = weights[i] - rate * m[i]
      else:
        m[i] = beta1 * m[i] + (1 - beta1) * g
        if name == 'adam':
          v[i] = beta2 * v[i] + (1 - beta2) * g**2
        else:
          v[i] = v[i] - (1 - beta2) * g**2 * np.sign(v[i] - g**2)
        weights[i] = weights[i] - rate * m[i] / (np.sqrt(v[i]) + tau)
  return weights, losses


@pytest.mark.parametrize('name', ['sgd', 'sgdm', 'adam', 'yogi'])
def test_full_batch_epochs_are_the_formulas(name):
  if name.startswith('sgd'):
    optimizer = optimizers.build_sgdm(0.1, momentum=0.9 if name == 'sgdm' else 0.0)
  else:
    optimizer = getattr(optimizers, f'build_{name}')(0.1, tau=1e-3)
  process = centralized.CentralizedTraining(_model(), optimizer, batch_size=40)
  state, losses = process.initialize(), []
  for _ in range(5):
    output = process.next(state, _DATA)
    state = output.state
    losses.append(float(output.metrics['train']['loss']))
  expected, expected_losses = _oracle(name, 5)
  np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
  for weight, other in zip(state.global_model_weights.trainable, expected):
    np.testing.assert_allclose(weight, other, rtol=2e-5, atol=2e-6)
  assert int(state.epoch) == 5


def test_an_epoch_sees_every_example_once_and_seeds_decide_the_order():
  def weights(seed, epochs=1):
    process = centralized.CentralizedTraining(
      _model(), optimizers.build_sgdm(0.1), batch_size=7, seed=seed
    )
    state = process.initialize()
    for _ in range(epochs):
      output = process.next(state, _DATA)
      state = output.state
    return np.concatenate([np.ravel(w) for w in state.global_model_weights.trainable])

  np.testing.assert_array_equal(weights(1, 2), weights(1, 2))
  assert np.abs(weights(1) - weights(2)).max() > 1e-5
  # Steps of rate 0 see the initial model: the epoch's loss is the loss of all examples.
  process = centralized.CentralizedTraining(_model(), optimizers.build_sgdm(0.0), batch_size=7)
  output = process.next(process.initialize(), _DATA)
  loss, _ = _gradient(*(np.asarray(w, np.float64) for w in _model().initial_weights[0]))
  np.testing.assert_allclose(output.metrics['train']['loss'], loss, rtol=1e-5)
