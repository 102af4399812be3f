"""Epsilon: closed forms, numerical integrals, published values, trees by brute force."""

import math
import types
import typing

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant
from scipy import integrate, stats

from tff_adaptive.aggregation import accounting


def divergence(p, q, epsilon):
  """The hockey-stick divergence of two densities, integrated numerically."""
  x = np.linspace(-60, 60, 400_001)
  return integrate.trapezoid(np.maximum(p(x) - math.exp(epsilon) * q(x), 0), x)


def normal(mean):
  return lambda x: stats.norm.pdf(x - mean)


@pytest.mark.parametrize('mu, delta', [(0.1, 1e-3), (0.5, 1e-5), (3.0, 1e-3), (8.0, 1e-9)])
def test_the_gaussian_mechanism_has_its_divergence(mu, delta):
  epsilon = accounting.gaussian_epsilon(mu, delta)
  assert divergence(normal(mu), normal(0), epsilon) == pytest.approx(delta, rel=1e-3)


def test_a_delta_that_hides_all_needs_no_epsilon():
  assert accounting.gaussian_epsilon(0.1, 0.5) == accounting.gaussian_epsilon(0.0, 1e-5) == 0.0
  deltas = [accounting.default_delta(num_clients) for num_clients in (1, 2, 1000)]
  np.testing.assert_allclose(deltas, [2**-1.1, 2**-1.1, 1000**-1.1])
  assert accounting.SampledGaussian(100, 10, 1.0).epsilon(0, 1e-3) == 0.0


@pytest.mark.parametrize('q, z', [(0.1, 1.3), (0.6, 1.3), (0.6, 0.25)])
def test_one_round_of_a_sampled_cohort_has_the_divergence_of_the_mixture(q, z):
  """A replaced client moves the sum by two clipping norms, if it is drawn."""
  delta = 1e-3
  epsilon = accounting.SampledGaussian(1000, int(1000 * q), z).epsilon(1, delta)

  def mixture(x):
    return q * normal(2 / z)(x) + (1 - q) * normal(0)(x)

  assert divergence(mixture, normal(0), epsilon) == pytest.approx(delta, rel=0.01)
  assert divergence(normal(0), mixture, epsilon) <= delta


def test_rounds_with_all_clients_are_one_gaussian_mechanism():
  z = 4.0
  rounds = 50
  delta = 1e-3
  everyone = accounting.SampledGaussian(100, 100, z).epsilon(rounds, delta)
  assert divergence(normal(2 / z * math.sqrt(rounds)), normal(0), everyone) == pytest.approx(
    delta, rel=1e-3
  )


@pytest.mark.parametrize('sizes, z, rounds', [((100, 10), 1.0, 30), ((5000, 50), 2.0, 500)])
def test_many_rounds_lie_close_above_one_direction_of_the_replacement(sizes, z, rounds):
  """A bound by pairs holds for either direction, so it is no less than that of one of them."""
  delta = 1e-4
  epsilon = accounting.SampledGaussian(*sizes, z).epsilon(rounds, delta)
  one = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
  event = dp_accounting.PoissonSampledDpEvent(
    sizes[1] / sizes[0], dp_accounting.GaussianDpEvent(z / 2)
  )
  one.compose(event, rounds)
  assert 0.999 * one.get_epsilon(delta) <= epsilon < 1.2 * one.get_epsilon(delta)


class Published(typing.NamedTuple):
  """Of Poisson sampling, one client or example added or removed, by the moments accountant."""

  size: int  # Clients or examples.
  drawn: int  # Those of a round.
  z: float
  rounds: int
  delta: float
  epsilon: float


PUBLISHED = {
  # README of TensorFlow Privacy's tutorials: MNIST, batches of 256; 15, 60 and 45 epochs.
  'tutorial 2': Published(
    size=60_000, drawn=256, z=1.1, rounds=60 * 60_000 // 256, delta=1e-5, epsilon=3.01
  ),
  # "Deep Learning with Differential Privacy" (Abadi et al., 2016), section 3: q = 0.01, sigma = 4.
  'deep learning': Published(
    size=60_000, drawn=600, z=4.0, rounds=10_000, delta=1e-5, epsilon=1.26
  ),
  # "Learning Differentially Private Recurrent Language Models" (McMahan et al., 2018), table 1.
  'language models': Published(
    size=763_430, drawn=5_000, z=1.0, rounds=5_000, delta=1e-9, epsilon=4.634
  ),
  'pfl-research': Published(
    size=10**6, drawn=1_000, z=0.632763, rounds=3_000, delta=1e-6, epsilon=2.0
  ),  # Its CIFAR-10, by its accountant.
}


@pytest.mark.parametrize('name', PUBLISHED)
def test_published_values_and_what_cohorts_of_fixed_size_have_instead(name):
  """With twice the noise a replaced client is hidden about as well as one that is added."""
  size, drawn, z, rounds, delta, published = PUBLISHED[name]
  event = dp_accounting.PoissonSampledDpEvent(drawn / size, dp_accounting.GaussianDpEvent(z))
  exact = pld_privacy_accountant.PLDAccountant(value_discretization_interval=1e-3)
  poisson = exact.compose(event, rounds).get_epsilon(delta)
  doubled = accounting.SampledGaussian(size, drawn, 2 * z).epsilon(rounds, delta)
  assert poisson <= doubled <= min(1.3 * poisson, 1.05 * published)
  assert accounting.SampledGaussian(size, drawn, z).epsilon(rounds, delta) > 2 * published


def brute_force(cohorts, num_clients, rounds, is_full):
  """The largest sum of n_v^2 over the nodes of a tree, from its definition."""
  took_part = np.zeros([num_clients, rounds], bool)
  for t in range(rounds):
    took_part[list(cohorts[t]), t] = True
  total = np.zeros(num_clients)
  for size in (2**k for k in range(rounds.bit_length())):
    for start in range(0, rounds, size):
      if start + size <= rounds or not is_full:
        total += took_part[:, start : start + size].sum(1) ** 2
  return total.max()


def test_a_tree_counts_how_often_a_client_is_below_each_node():
  rng = np.random.default_rng(0)
  cohorts = [rng.choice(9, 4, replace=False) for _ in range(37)]
  tree = accounting.TreeGaussian(9, lambda t: cohorts[t - 1], 1.0)
  for rounds in (0, 1, 2, 3, 8, 21, 32, 37):
    assert tree.move(rounds) ** 2 == pytest.approx(brute_force(cohorts, 9, rounds, False))
    assert tree.move(rounds) ** 2 > brute_force(cohorts, 9, rounds, True) - 1e-9
  assert tree.move(32) ** 2 == pytest.approx(brute_force(cohorts, 9, 32, True))


def test_a_client_that_takes_part_once_is_in_one_node_of_each_level():
  tree = accounting.TreeGaussian(2000, lambda t: np.array([t - 1]), 7.0)
  assert tree.move(2000) ** 2 == pytest.approx(11)
  for z in (7.0, 14.0):
    wanted = accounting.gaussian_epsilon(2 * math.sqrt(11) / z, 1e-6)
    assert tree.with_noise(z).epsilon(2000, 1e-6) == pytest.approx(wanted)


def test_the_noise_for_a_target_is_the_least_that_meets_it():
  def make(z):
    return accounting.SampledGaussian(500, 20, z)

  z = accounting.noise_multiplier_for(4.0, make, 100, 1e-4)
  assert make(z).epsilon(100, 1e-4) <= 4.0 < make(z * 0.995).epsilon(100, 1e-4)


@pytest.mark.parametrize('epsilon, z', [(1e5, 0.05), (3.0, 0.3334), (0.3, 3.334), (0.041, 24.4)])
def test_the_noise_for_a_target_has_four_digits_rounded_up(epsilon, z):
  def make(noise):
    return types.SimpleNamespace(epsilon=lambda rounds, delta: rounds / noise)

  assert accounting.noise_multiplier_for(epsilon, make, 1, 1e-5) == pytest.approx(z, rel=1e-6)
  with pytest.raises(ValueError, match='no noise reaches epsilon 1e-07, delta 1e-05 in 1 rounds'):
    accounting.noise_multiplier_for(1e-7, make, 1, 1e-5)


def test_noise_on_counts_and_on_updates_is_worth_what_was_asked_for():
  on_updates = accounting.update_noise_multiplier(0.8, 0.5)
  assert on_updates**-2 + (2 * 0.5) ** -2 == pytest.approx(0.8**-2)
  with pytest.raises(ValueError, match=r'count_stddev must be above 0.5, .* found 0.5'):
    accounting.update_noise_multiplier(1.0, accounting.count_stddev(10))


TREE = accounting.TreeGaussian(10, lambda t: np.array([0]), 1.0)


@pytest.mark.parametrize(
  'compute, words',
  [
    (lambda: accounting.SampledGaussian(100, 0, 1.0), 'clients_per_round must be at least 1'),
    (lambda: accounting.SampledGaussian(100, 101, 1.0), 'clients_per_round must be at most 100'),
    (lambda: accounting.SampledGaussian(0, 1, 1.0), 'num_clients must be at least 1'),
    (lambda: accounting.SampledGaussian(100, 10, 0.0), 'noise_multiplier must be .* above 0'),
    (lambda: TREE.epsilon(-1, 1e-5), 'rounds must be at least 0'),
    (lambda: accounting.TreeGaussian(0, None, 1.0), 'num_clients must be at least 1'),
    (lambda: accounting.update_noise_multiplier(0.0, 1.0), 'noise_multiplier must be .* above 0'),
    (lambda: TREE.epsilon(10, 0.0), 'delta must be .* above 0'),
    (lambda: accounting.SampledGaussian(9, 3, 1.0).epsilon(10, 2.0), r'delta must be in \[0, 1\)'),
    (lambda: accounting.noise_multiplier_for(0.0, None, 10, 0.1), 'epsilon must be .* above 0'),
  ],
)
def test_arguments_out_of_their_range_are_refused(compute, words):
  with pytest.raises(ValueError, match=f'^{words}'):
    compute()
