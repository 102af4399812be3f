"""Each optimizer against its formula in NumPy, float64; what all of them share is tested once."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import algorithms, optimizers, registry

ETA, STEPS = 0.1, 4


class Adam:
  """The direction of AdamW, of one tensor."""

  def __init__(self, beta1, beta2, tau, decay):
    self.values, self.m, self.v, self.t = (beta1, beta2, tau, decay), 0.0, 0.0, 0

  def direction(self, x, g):
    beta1, beta2, tau, decay = self.values
    self.t += 1
    self.m, self.v = beta1 * self.m + (1 - beta1) * g, beta2 * self.v + (1 - beta2) * g * g
    m, v = self.m / (1 - beta1**self.t), self.v / (1 - beta2**self.t)
    return m / (np.sqrt(v) + tau) + decay * x

  def __call__(self, x, g):
    return x - ETA * self.direction(x, g)


class Lamb(Adam):
  def __call__(self, x, g):
    r = self.direction(x, g)
    of_x, of_r = np.linalg.norm(x), np.linalg.norm(r)
    return x - ETA * (of_x / of_r if of_x > 0 and of_r > 0 else 1.0) * r


class Nesterov:
  m = 0.0

  def __call__(self, x, g):
    self.m = 0.8 * self.m + g
    return x - ETA * (g + 0.8 * self.m)


class AmsGrad:
  m = v = v_max = 0.0

  def __call__(self, x, g):
    self.m, self.v = 0.7 * self.m + 0.3 * g, 0.6 * self.v + 0.4 * g * g
    self.v_max = np.maximum(self.v_max, self.v)
    return x - ETA * self.m / (np.sqrt(self.v_max) + 1e-3)


class Lion:
  m = 0.0

  def __call__(self, x, g):
    step = np.sign(0.5 * self.m + 0.5 * g) + 0.2 * x
    self.m = 0.9 * self.m + 0.1 * g
    return x - ETA * step


class Muon:
  m = 0.0

  def __init__(self):
    self.adam = Adam(0.9, 0.99, 1e-3, 0.3)

  def __call__(self, x, g):
    if x.ndim < 2:
      return self.adam(x, g)
    self.m = 0.9 * self.m + g
    o = (g + 0.9 * self.m).reshape(-1, x.shape[-1])
    o, large = o / (np.linalg.norm(o) + 1e-7), max(o.shape)
    for _ in range(5):  # X <- a X + b X X' X + c X X' X X' X, from the other side.
      gram = o.T @ o
      o = 3.4445 * o - 4.7750 * o @ gram + 2.0315 * o @ gram @ gram
    return x - ETA * (0.2 * np.sqrt(large) * o.reshape(x.shape) + 0.3 * x)


MOMENTS = dict(beta1=0.7, beta2=0.6, tau=1e-3)
CASES = {
  'nesterov': (optimizers.build_nesterov, dict(momentum=0.8), Nesterov),
  'adam': (optimizers.build_adamw, MOMENTS, lambda: Adam(0.7, 0.6, 1e-3, 0.0)),
  'adamw': (optimizers.build_adamw, dict(MOMENTS, decay=0.3), lambda: Adam(0.7, 0.6, 1e-3, 0.3)),
  'no momentum': (optimizers.build_adamw, dict(beta1=0), lambda: Adam(0.0, 0.999, 1e-8, 0.0)),
  'amsgrad': (optimizers.build_amsgrad, MOMENTS, AmsGrad),
  'lion': (optimizers.build_lion, dict(beta1=0.5, beta2=0.9, decay=0.2), Lion),
  'lamb': (optimizers.build_lamb, dict(MOMENTS, decay=0.3), lambda: Lamb(0.7, 0.6, 1e-3, 0.3)),
  'muon': (optimizers.build_muon, dict(momentum=0.9, beta2=0.99, tau=1e-3, decay=0.3), Muon),
}


def gradients(shapes, seed=0):
  random = np.random.default_rng(seed)
  return [[random.normal(size=shape) for shape in shapes] for _ in range(STEPS)]


@pytest.mark.parametrize('build, options, oracle', CASES.values(), ids=CASES)
def test_an_optimizer_follows_its_formula(build, options, oracle):
  shapes = [(3,), (), (2, 5), (5, 2), (2, 2, 3)]
  expected, *gs = gradients(shapes) + gradients(shapes, 1)
  expected[0] = np.zeros(3)  # A tensor of norm 0.
  weights = tuple(map(tf.constant, expected))
  optimizer, oracles = build(ETA, **options), [oracle() for _ in shapes]
  state = optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights))
  for g in gs:
    state, weights = optimizer.next(state, weights, tuple(map(tf.constant, g)))
    expected = [step(x, own) for step, x, own in zip(oracles, expected, g)]
    for found, wanted in zip(weights, expected):
      np.testing.assert_allclose(found, wanted, 1e-11, 1e-12)


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
  for found, g in zip(together, gs):
    np.testing.assert_allclose(found, run(g), 1e-5, 1e-6)


def test_a_rate_may_be_a_schedule_and_a_number_out_of_range_is_refused():
  optimizer = optimizers.build_lion(lambda t: 1.0 + t)
  state, x = optimizer.initialize(tf.TensorSpec([1])), tf.zeros([1])
  for wanted in (-1.0, -3.0):
    state, x = optimizer.next(state, x, tf.ones([1]))
    assert x.numpy() == wanted
  with pytest.raises(ValueError, match=r'decay must be finite and at least 0, found -1'):
    optimizers.build_lion(0.1, decay=-1)
