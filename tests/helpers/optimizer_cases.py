"""The server optimizers with which the tests are driven, and the oracle that they must follow."""

import dataclasses

import numpy as np
import tensorflow_federated as tff

from tff_adaptive import optimizers

tff_optimizers = tff.learning.optimizers

# The oracle: m and v as the sums that the recursions of Algorithm 2 unroll to, in float64.


def moving_average(decay, first, terms):
  """decay^(t+1) first + (1 - decay) sum_k decay^(t-k) terms[k], for t the last index."""
  t = len(terms) - 1
  total = decay ** (t + 1) * first
  for k, term in enumerate(terms):
    total = total + (1 - decay) * decay ** (t - k) * term
  return total


def yogi_v(decay, first, terms):
  """v moves (1 - decay) term up where it is below the term, down where above."""
  v = np.full_like(terms[0], first)
  for term in terms:
    v = np.where(v < term, v + (1 - decay) * term, np.where(v > term, v - (1 - decay) * term, v))
  return v


@dataclasses.dataclass(frozen=True)
class Case:
  """An optimizer of this project, its oracle and, where there is one, its equal in TFF."""

  build: object
  eta: float
  options: dict
  beta1: float = 0.0
  v: object = None  # (first, squared deltas) -> v; None for SGD.
  initial_v: float = 0.0
  tau: float = 0.0
  corrected_beta2: float = 0.0  # Not 0: bias correction.
  equal: object = None  # -> TFF's optimizer.

  def optimizer(self):
    return self.build(self.eta, **self.options)

  def oracle(self, x, deltas):
    """Returns the weights, m and v after each round, as float64 arrays."""
    deltas = [np.asarray(delta, np.float64) for delta in deltas]
    x = np.asarray(x, np.float64)
    history = []
    for t in range(len(deltas)):
      seen = deltas[: t + 1]
      if self.v is None:
        m = sum(self.beta1 ** (t - k) * delta for k, delta in enumerate(seen))
        v, x = None, x + self.eta * m
      else:
        m = moving_average(self.beta1, 0.0, seen)
        v = self.v(self.initial_v, [delta**2 for delta in seen])
        eta = self.eta
        if self.corrected_beta2:
          eta *= np.sqrt(1 - self.corrected_beta2 ** (t + 1)) / (1 - self.beta1 ** (t + 1))
        x = x + eta * m / (np.sqrt(v) + self.tau)
      history.append((x, m, v))
    return history


def adam_of(beta2):
  return lambda first, terms: moving_average(beta2, first, terms)


def yogi_of(beta2):
  return lambda first, terms: yogi_v(beta2, first, terms)


def adagrad(first, terms):
  return first + sum(terms)


CASES = {
  'sgd': Case(optimizers.build_sgdm, 1.0, {}, equal=lambda: tff_optimizers.build_sgdm(1.0)),
  'sgdm': Case(
    optimizers.build_sgdm,
    0.3,
    dict(momentum=0.9),
    beta1=0.9,
    equal=lambda: tff_optimizers.build_sgdm(0.3, 0.9),
  ),
  'adagrad': Case(optimizers.build_adagrad, 0.1, {}, v=adagrad, initial_v=1e-6, tau=1e-3),
  'adagrad_with_momentum': Case(
    optimizers.build_adagrad,
    0.1,
    dict(beta1=0.7, tau=0.1),
    beta1=0.7,
    v=adagrad,
    initial_v=0.01,
    tau=0.1,
  ),
  'adam': Case(
    optimizers.build_adam, 0.1, {}, beta1=0.9, v=adam_of(0.99), initial_v=1e-6, tau=1e-3
  ),
  'adam_of_tff': Case(
    optimizers.build_adam,
    0.1,
    dict(beta2=0.999, tau=1e-5, bias_correction=True, initial_v=0),
    beta1=0.9,
    v=adam_of(0.999),
    tau=1e-5,
    corrected_beta2=0.999,
    equal=lambda: tff_optimizers.build_adam(0.1, 0.9, 0.999, 1e-5),
  ),
  'yogi': Case(
    optimizers.build_yogi, 0.1, {}, beta1=0.9, v=yogi_of(0.99), initial_v=1e-6, tau=1e-3
  ),
  'yogi_other_values': Case(
    optimizers.build_yogi,
    10**-2.5,
    dict(beta1=0.5, beta2=0.8, tau=1e-4, initial_v=0.04),
    beta1=0.5,
    v=yogi_of(0.8),
    initial_v=0.04,
    tau=1e-4,
  ),
  'yogi_of_tff': Case(
    optimizers.build_yogi,
    0.1,
    dict(beta2=0.999, bias_correction=True),
    beta1=0.9,
    v=yogi_of(0.999),
    initial_v=1e-6,
    tau=1e-3,
    corrected_beta2=0.999,
    equal=lambda: tff_optimizers.build_yogi(0.1),
  ),
}
