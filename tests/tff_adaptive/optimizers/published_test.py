"""Each optimizer against its formula in NumPy, float64; what all of them share is tested once."""

import numpy as np
import pytest
import tensorflow as tf

from oracle import optimizers as oracles
from tff_adaptive import algorithms, optimizers, registry
from tff_adaptive._utils.weight_groups import NamedWeight
from tff_adaptive.optimizers import base, published

ETA = 0.1
STEPS = 4
MOMENTS = dict(beta1=0.7, beta2=0.6, tau=1e-3)
MUON = dict(momentum=0.9, beta2=0.99, tau=1e-3, decay=0.3)
CASES = {
  'nesterov': (optimizers.build_nesterov, dict(momentum=0.8), oracles.Nesterov),
  'adam': (published.build_adam_of_clients, MOMENTS, oracles.Adam),
  'adamw': (optimizers.build_adamw, dict(MOMENTS, decay=0.3), oracles.Adam),
  'no momentum': (
    optimizers.build_adamw,
    dict(beta1=0, beta2=0.999, tau=1e-8, decay=0),
    oracles.Adam,
  ),
  'amsgrad': (optimizers.build_amsgrad, MOMENTS, oracles.AmsGrad),
  'lion': (optimizers.build_lion, dict(beta1=0.5, beta2=0.9, decay=0.2), oracles.Lion),
  'lamb': (optimizers.build_lamb, dict(MOMENTS, decay=0.3), oracles.Lamb),
  'muon': (optimizers.build_muon, MUON, oracles.Muon),
}


def gradients(shapes, seed=0):
  random = np.random.default_rng(seed)
  draws = []
  for _ in range(STEPS):
    draws.append([random.normal(size=shape) for shape in shapes])
  return draws


@pytest.mark.parametrize('build, options, oracle', CASES.values(), ids=CASES)
def test_an_optimizer_follows_its_formula(build, options, oracle):
  shapes = [(3,), (), (2, 5), (5, 2), (2, 2, 3)]
  expected, *gs = gradients(shapes) + gradients(shapes, 1)
  expected[0] = np.zeros(3)  # A tensor of norm 0.
  weights = tuple(map(tf.constant, expected))
  optimizer = build(ETA, **options)
  steps = [oracle(ETA, **options) for _ in shapes]
  state = optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights))
  for g in gs:
    state, weights = optimizer.next(state, weights, tuple(map(tf.constant, g)))
    expected = [step(x, -gradient) for step, x, gradient in zip(steps, expected, g)]
    for actual, wanted in zip(weights, expected):
      np.testing.assert_allclose(actual, wanted, 1e-11, 1e-12)


@pytest.mark.parametrize('name', registry.CLIENT_OPTIMIZERS)
def test_clients_of_a_group_step_as_each_by_itself(name):
  optimizer = algorithms.build_client_optimizer(name)
  gs = [tf.constant(np.stack(g), tf.float32) for g in zip(*gradients([(2, 3)] * 2))]

  def run(g):
    theta = (tf.ones([2, 3]),)
    state = optimizer.initialize((tf.TensorSpec([2, 3]),))
    for one in tf.unstack(g)[:2]:
      state, theta = optimizer.next(state, theta, (one,))
    return theta[0]

  together = tf.vectorized_map(run, tf.stack(gs))
  for actual, g in zip(together, gs):
    np.testing.assert_allclose(actual, run(g), 1e-5, 1e-6)


def muon_of_two(adamw):
  """Muon for a model with two dense layers, after a step from ones with gradients of ones."""
  weights = [
    NamedWeight('body/kernel', (2, 3), frozenset({'body'})),
    NamedWeight('head/kernel', (3, 2), frozenset({'head'})),
  ]
  optimizer = optimizers.build_muon(ETA, adamw=adamw).for_weights(weights)
  ones = tuple(tf.ones(weight.shape) for weight in weights)
  state = optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in ones))
  return optimizer.next(state, ones, ones)[1]


def test_muon_leaves_named_matrices_to_adamw():
  every_matrix = muon_of_two('none')
  hidden = muon_of_two('head')
  np.testing.assert_array_equal(hidden[0], every_matrix[0])
  # The first step of AdamW is the rate, whatever the gradient.
  np.testing.assert_allclose(hidden[1], 1 - ETA, rtol=1e-6)
  assert np.abs(every_matrix[1] - hidden[1]).max() > 0.01


def test_muon_that_waits_for_the_names_of_weights_is_refused():
  optimizer = optimizers.build_muon(ETA, adamw='head')
  weights = (tf.ones([2, 3]),)
  state = optimizer.initialize((tf.TensorSpec([2, 3], tf.float32),))
  with pytest.raises(ValueError, match='adamw=head needs the names of the weights'):
    optimizer.next(state, weights, weights)


def test_muon_refuses_weights_that_the_model_has_not():
  with pytest.raises(
    ValueError, match="adamw=dense/kernel: the model has no weight 'dense/kernel'"
  ):
    muon_of_two('dense/kernel')


class OtherSlots(published.Nesterov):
  """Gives a weight a formula with other slots."""

  def for_weights(self, weights):
    return [published.AdamW()]


class TooFew(published.Nesterov):
  """Gives no weight a formula."""

  def for_weights(self, weights):
    return []


@pytest.mark.parametrize(
  ('formula', 'words'),
  [
    (OtherSlots(), 'all formulas must have the slots of OtherSlots'),
    (TooFew(), 'TooFew.for_weights returned 0 formulas for 1 weights'),
  ],
)
def test_formulas_that_cannot_be_those_of_the_weights_are_refused(formula, words):
  weights = [NamedWeight('dense/kernel', (2, 3), frozenset({'head'}))]
  with pytest.raises(ValueError, match=words):
    base.build(formula, ETA).for_weights(weights)
