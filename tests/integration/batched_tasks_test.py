"""Every task's model computes several clients together as it does one after another.

That the local training around it does so too, with every correction: `groups_test.py`.
"""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.client import model_adapters
from tff_adaptive_tasks import (
  catalog,
  cifar,
  digits,
  emnist,
  images,
  least_squares,
  shakespeare,
  stackoverflow,
  tags,
)
from tff_adaptive_tasks.models import resnet

MODELS = {
  'digits': lambda: digits.build_model(0),
  'emnist_cr': lambda: emnist.build_cnn(0),
  'emnist_ae': lambda: emnist.build_autoencoder(0),
  'shakespeare': lambda: shakespeare.build_model(0),
  'stackoverflow_nwp': lambda: stackoverflow.build_model(30, 'published', 0),
  'stackoverflow_lr': lambda: tags.build_model(40, 8, 0),
  'cifar100': lambda: resnet.build(0, 100),
  'emnist_letters': lambda: images.build_perceptron(0, 'emnist_letters'),
  'cifar10_cnn': lambda: cifar.build_cnn(0, 10),
  'mnist_skewed': lambda: images.build_perceptron(0, 'mnist_skewed'),
  'mnist_2nn': lambda: images.build_perceptron(0, 'mnist_2nn'),
  'mnist_cnn': lambda: images.build_cnn(0),
  'least_squares': lambda: least_squares.build_model(0),
}
# The same networks for another number of classes.
SAME = {'cifar10': 'cifar100', 'cifar100_cnn': 'cifar10_cnn', 'digits_skewed': 'mnist_skewed'}


def batch(model):
  """Two examples of each of two clients, of the kinds that the model's input has."""
  rng = np.random.default_rng(0)
  arrays = collections.OrderedDict()
  for key, spec in model.input_spec.items():
    shape = [2, 2, *spec.shape[1:]]
    most = 256 if len(shape) == 5 else 9  # Pixels; else tokens, counts and labels.
    numbers = rng.random(shape) if spec.dtype.is_floating else rng.integers(1, most, shape)
    arrays[key] = tf.constant(numbers.astype(spec.dtype.as_numpy_dtype))
  return arrays


def test_every_task_is_here():
  assert {*MODELS, *SAME} == set(catalog.names())
  assert not MODELS.keys() & SAME.keys()


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_a_step_together_is_as_one_after_another(name):
  model = MODELS[name]()
  single = model_adapters.wrap(model)
  together = single.for_groups()
  examples, seeds = batch(model), tf.constant([[1, 2], [3, 4]])
  shares = tf.constant([[0.5, 0.5], [1.0, 0.0]])  # The second client has one example and padding.
  sizes = tf.constant([2.0, 1.0])
  step = model_adapters.LocalStep
  # The clients' weights differ, as they do after a step.
  weights = [tf.constant(np.stack([w, 1.3 * w]), tf.float32) for w in model.initial_weights[0]]

  @tf.function(autograph=False)
  def one(weights, batch, weighting, seed):
    return single.gradients(weights, (), step(batch, weighting, seed), single.start())

  @tf.function(autograph=False)
  def both(weights, batch, weighting, seed):
    return together.gradients(weights, (), step(batch, weighting, seed), together.start(2))

  grads, metrics = both(tuple(weights), examples, (shares, sizes), seeds)
  for i in range(2):

    def alone(dtype, i=i):
      mine = {key: value[i] for key, value in examples.items()}
      cast = tuple(tf.cast(w[i], dtype) for w in weights)
      found, sums = one(cast, mine, (shares[i], sizes[i]), seeds[i])
      return [tf.convert_to_tensor(g).numpy() for g in found], sums

    found = [tf.convert_to_tensor(g)[i].numpy() for g in grads]
    wanted, expected_metrics = alone(tf.float32)
    np.testing.assert_allclose(metrics[i], expected_metrics, rtol=1e-4)
    if name != 'cifar100':
      for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, 1e-3, 1e-4 * np.abs(b).max())
    else:
      # Eighteen layers with ReLUs may magnify float32's rounding to a percent. With the other
      # client's weights the distance is 0.29 or more, with its batch or its weighting 0.7.
      exact, _ = alone(tf.float64)
      assert _distance(found, exact) < 0.1


def _distance(a, b):
  """Euclidean, relative to b."""
  a, b = (np.concatenate([g.ravel() for g in gradient]) for gradient in (a, b))
  return np.linalg.norm(a - b) / np.linalg.norm(b)
