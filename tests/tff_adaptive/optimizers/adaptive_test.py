"""Facts about the server optimizers; one table drives them all."""

import collections
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from tff_adaptive import optimizers, schedules

tff_optimizers = tff.learning.optimizers


class Case(NamedTuple):
  """An optimizer, and its oracle for one tensor."""

  build: Callable
  oracle: Callable
  eta: float
  options: dict

  def optimizer(self):
    return self.build(self.eta, **self.options)


def sgd(eta, **options):
  return Case(optimizers.build_sgdm, lambda: oracle.Sgd(eta, **options), eta, options)


def adaptive(kind, eta=0.1, **options):
  """One of the three; options that are not given are the paper's."""
  values = {'beta1': 0.0 if kind == 'adagrad' else 0.9, 'beta2': 0.99, 'tau': 1e-3, **options}
  build = getattr(optimizers, f'build_{kind}')
  return Case(build, lambda: oracle.Adaptive(kind, eta, **values), eta, options)


CASES = {
  'sgd': sgd(1.0),
  'sgdm': sgd(0.3, momentum=0.9),
  'adagrad': adaptive('adagrad'),
  'adagrad_with_momentum': adaptive('adagrad', beta1=0.7, tau=0.1),
  'adam': adaptive('adam'),
  'adam_of_tff': adaptive('adam', beta2=0.999, tau=1e-5, bias_correction=True, initial_v=0),
  'yogi': adaptive('yogi', 10**-2.5, beta1=0.5, beta2=0.8, tau=1e-4, initial_v=0.04),
  'yogi_of_tff': adaptive('yogi', beta2=0.999, bias_correction=True),
}

LAYER = collections.OrderedDict(kernel=tf.TensorSpec((2, 1, 3)), empty=tf.TensorSpec((0, 2)))
SPECS = collections.OrderedDict(w=[tf.TensorSpec((4,)), LAYER], b=(tf.TensorSpec(()),))
TOLERANCE = {'float32': 2e-5, 'float64': 1e-11, 'bfloat16': 2e-5}


def draw(dtype, seed):
  """Draws tensors whose size varies by orders of magnitude, as pseudo-gradients do."""
  random = np.random.default_rng(seed)

  def leaf(spec):
    size = spec.shape.as_list()
    return tf.constant(random.normal(size=size) * 10 ** random.uniform(-4, 1, size=size), dtype)

  return tf.nest.map_structure(leaf, SPECS)


def specs_of(weights):
  return tf.nest.map_structure(lambda w: tf.TensorSpec(w.shape, w.dtype), weights)


def negative(delta):
  return tf.nest.map_structure(lambda d: -d, delta)


def run(optimizer, weights, deltas):
  """Returns the state and the weights after each round."""
  state = optimizer.initialize(specs_of(weights))
  history = []
  for delta in deltas:
    state, weights = optimizer.next(state, weights, negative(delta))
    history.append((state, weights))
  return history


def flat_arrays(structure):
  return [np.asarray(tf.cast(leaf, tf.float64)) for leaf in tf.nest.flatten(structure)]


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request):
  return request.param


@pytest.mark.parametrize('dtype', TOLERANCE)
def test_follows_the_formulas(case, dtype):
  weights = draw(dtype, seed=0)
  deltas = [draw(dtype, seed=1 + t) for t in range(10)]
  history = run(case.optimizer(), weights, deltas)
  flat_deltas = [flat_arrays(delta) for delta in deltas]
  for i, x in enumerate(flat_arrays(weights)):
    step = case.oracle()
    for (state, weights_after), delta in zip(history, flat_deltas):
      x = step(x, delta[i])
      leaf = tf.nest.flatten(weights_after)[i]
      assert leaf.dtype == dtype
      # The weights themselves are rounded every round; m and v never are to 16 bits.
      if dtype == 'bfloat16':
        rounding = 40 * 2.0**-8 * (1 + np.abs(x).max(initial=0))
      else:
        rounding = 0
      tolerance = TOLERANCE[dtype]
      np.testing.assert_allclose(flat_arrays(leaf)[0], x, tolerance, tolerance + rounding)
      if 'm' in state:
        sign = -1 if 'momentum' in state else 1
        np.testing.assert_allclose(flat_arrays(state['m'])[i], sign * step.m, tolerance, tolerance)
      if 'v' in state:
        np.testing.assert_allclose(flat_arrays(state['v'])[i], step.v, tolerance, tolerance * 1e-6)


def test_yogis_v_rests_where_it_equals_the_square():
  optimizer = optimizers.build_yogi(1.0, beta2=0.75, initial_v=4.0)
  [(state, weights)] = run(optimizer, tf.constant([1.0]), [tf.constant([2.0])])
  assert state['v'].numpy() == 4.0
  assert np.isfinite(weights.numpy())


def test_a_gradient_of_none_changes_nothing_of_its_weight(case):
  optimizer = case.optimizer()
  weights = (tf.constant([1.0, 2.0]), tf.constant(3.0))
  state = optimizer.initialize(specs_of(weights))
  state, weights = optimizer.next(state, weights, (tf.constant([0.5, 0.1]), tf.constant(1.0)))
  after, changed = optimizer.next(state, weights, (None, tf.constant(1.0)))
  np.testing.assert_array_equal(changed[0], weights[0])
  assert changed[1] != weights[1]
  for slot in set(state) & {'m', 'v'}:
    np.testing.assert_array_equal(after[slot][0], state[slot][0])
    assert after[slot][1] != state[slot][1]


def test_sparse_gradients_are_dense_ones_in_another_form():
  optimizer = optimizers.build_yogi(0.1)
  weights = tf.ones([3, 2])
  state = optimizer.initialize(specs_of(weights))
  sparse = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([3, 2]))
  dense = tf.constant([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
  _, from_sparse = optimizer.next(state, weights, sparse)
  _, expected = optimizer.next(state, weights, dense)
  np.testing.assert_array_equal(from_sparse, expected)


def test_hyperparameters_can_be_read_and_changed(case):
  optimizer = case.optimizer()
  weights = tf.constant([1.0, -2.0], tf.float64)
  gradient = tf.constant([0.3, 0.1], tf.float64)
  state = optimizer.initialize(specs_of(weights))
  hparams = optimizer.get_hparams(state)
  assert hparams['learning_rate'] == case.eta
  assert set(hparams) <= {'learning_rate', 'momentum', 'beta1', 'beta2', 'tau'}
  assert optimizer.set_hparams(state, hparams) == state

  hparams['learning_rate'] = 2 * case.eta
  changed = optimizer.set_hparams(state, hparams)
  assert list(changed) == list(state)
  assert state['learning_rate'] == case.eta
  _, once = optimizer.next(state, weights, gradient)
  _, twice = optimizer.next(changed, weights, gradient)
  np.testing.assert_allclose(twice - weights, 2 * (once - weights), rtol=1e-5)


def test_a_schedule_sets_the_rate_of_each_round(case):
  schedule = schedules.build('round_decay', 0.4, factor=0.5)
  weights = draw('float32', seed=0)
  deltas = [draw('float32', seed=1 + t) for t in range(4)]
  history = run(case.build(schedule, **case.options), weights, deltas)
  optimizer = case.optimizer()
  state = optimizer.initialize(specs_of(weights))
  for t, delta in enumerate(deltas):
    state['learning_rate'] = 0.4 * 0.5**t
    state, weights = optimizer.next(state, weights, negative(delta))
    for a, b in zip(flat_arrays(history[t][1]), flat_arrays(weights)):
      np.testing.assert_allclose(a, b, 1e-6)


def test_integers_are_taken_as_floats():
  state = optimizers.build_adam(1, beta1=0, tau=1).initialize(tf.TensorSpec([2]))
  assert [type(state[name]) for name in ('learning_rate', 'tau')] == [float, float]
  assert not {'beta1', 'm'} & set(state)
