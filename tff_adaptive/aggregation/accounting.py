"""Computes the privacy (epsilon, delta) of the models that a run publishes, without TensorFlow.

Two sets of clients are neighbours if one client is replaced by another. This moves a sum of clipped
updates by at most twice the clipping norm. The number of clients is public.
"""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution
from scipy import optimize, special

from tff_adaptive._utils import validation

# A client that is replaced moves a sum of clipped updates by this many clipping norms.
SENSITIVITY = 2.0
_GRID = 1e-3  # The step of the grid of privacy losses. A larger step never lowers epsilon.
_TAIL = 12.0  # A privacy loss beyond this many standard deviations counts as infinite.


class SampledGaussian:
  """The accountant of Gaussian noise on cohorts of fixed size, drawn at random in each round.

  A cohort is drawn uniformly without replacement; q is its share of the clients. Epsilon is
  computed from privacy loss distributions. The hockey-stick divergence of a round at exp(e) is at
  most q times that of the Gaussian at 1 + (exp(e) - 1) / q ("Privacy Amplification by Subsampling",
  Balle et al., 2018, theorem 9). A pair of distributions with this divergence is composed over the
  rounds ("Optimal Accounting of Differential Privacy via Characteristic Function", Zhu et al.,
  2022). The result holds against those who do not know which clients were drawn.
  """

  method = 'privacy loss distributions, against those who do not know the cohorts'

  def __init__(self, num_clients: int, clients_per_round: int, noise_multiplier: float):
    """Creates the accountant.

    Args:
      num_clients: Number of clients.
      clients_per_round: Number of clients drawn in a round.
      noise_multiplier: z > 0, the standard deviation of the noise divided by the clipping norm. It
        includes the noise on the count of unclipped updates, if there is any.
    """
    self.noise_multiplier = _checked_noise(noise_multiplier)
    validation.count('num_clients', num_clients, 'give the number of all clients')
    hint = 'give the clients drawn in a round, of those that there are'
    validation.whole_number('clients_per_round', clients_per_round, 1, hint, high=num_clients)
    self._sizes = num_clients, clients_per_round

  def epsilon(self, rounds: int, delta: float) -> float:
    """Returns the epsilon of `rounds` rounds at `delta`."""
    _check(rounds, delta)
    if rounds == 0:
      return 0.0
    num_clients, drawn = self._sizes
    # Without sampling the composition of Gaussians is one Gaussian, with the exact curve.
    if drawn == num_clients:
      return gaussian_epsilon(math.sqrt(rounds) * SENSITIVITY / self.noise_multiplier, delta)
    return float(self._loss.self_compose(rounds).get_epsilon_for_delta(delta))

  @functools.cached_property
  def _loss(self) -> Any:
    num_clients, drawn = self._sizes
    mu = SENSITIVITY / self.noise_multiplier
    q = drawn / num_clients
    # The largest loss of the sampled mechanism, from the largest loss of the Gaussian.
    loss = mu * mu / 2 + _TAIL * mu
    # e' = log(1 + q (exp(e) - 1)) of the theorem, rewritten so that exp(e) cannot overflow.
    last = math.ceil((loss + math.log(q + (1 - q) * math.exp(-loss))) / _GRID)
    grid = np.arange(-last, last + 1) * _GRID
    size = np.abs(grid)
    share = np.log(1 / q + (1 - 1 / q) * np.exp(-size))  # log(1 + (exp(e) - 1) / q) - e, finite.
    deltas = q * _hockey_stick(size + share, mu)
    # For e < 0: H_a(P, Q) = 1 - a + a H_{1/a}(Q, P), and neighbours may be exchanged.
    below = np.minimum(grid, 0.0)
    deltas = np.where(grid >= 0, deltas, -np.expm1(below) + np.exp(below) * deltas)
    # In exact arithmetic the curve falls and lies in [0, 1]; rounding must not break that, because
    # the distribution is made from its differences.
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    # Pessimistic: between points of the grid it is above the curve, so epsilon is never too small.
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(_GRID, -last, last, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


class TreeGaussian:
  """The accountant of noise on a binary tree over the rounds, for cohorts that may be known.

  Each node v has the sum of the updates of the rounds below it, plus noise. If a client took part
  n_v times in these rounds, its replacement moves all nodes together by at most 2 sqrt(sum n_v^2)
  clipping norms. The n_v are counted in the run's own cohorts, so random drawing does not improve
  epsilon. Gaussian noise hides such a move as in `gaussian_epsilon`, even if rounds depend on
  earlier ones ("Practical and Private (Deep) Learning without Sampling or Shuffling", Kairouz et
  al., 2021, appendix D).
  """

  method = 'the exact curve of a Gaussian, also against those who know the cohorts'

  def __init__(
    self, num_clients: int, cohort: Callable[[int], np.ndarray], noise_multiplier: float
  ):
    """Creates the accountant.

    Args:
      num_clients: Number of clients.
      cohort: A function from a round, counted from 1, to the indices of its clients, from 0.
      noise_multiplier: z > 0, a node's standard deviation of noise divided by the clipping norm.
    """
    self.noise_multiplier = _checked_noise(noise_multiplier)
    validation.count('num_clients', num_clients, 'give the number of all clients')
    self._cohort = cohort
    self._totals = np.zeros(num_clients, np.int64)  # By client, the rounds that it took part in.
    self._moved = np.zeros(num_clients, np.int64)  # By client, the sum of n_v^2.
    self._open: list[np.ndarray] = []  # By level, n_v of the node that is not full yet.
    self._largest = [0]  # By number of rounds, the largest of these sums.

  def with_noise(self, noise_multiplier: float) -> 'TreeGaussian':
    """Returns an accountant of the same cohorts with other noise; both share the counts."""
    other = copy.copy(self)
    other.noise_multiplier = noise_multiplier
    return other

  def epsilon(self, rounds: int, delta: float) -> float:
    """Returns the epsilon of `rounds` rounds at `delta`."""
    _check(rounds, delta)
    return gaussian_epsilon(SENSITIVITY * self.move(rounds) / self.noise_multiplier, delta)

  def move(self, rounds: int) -> float:
    """Returns the largest sqrt(sum n_v^2) of a client after `rounds` rounds; see `TreeGaussian`."""
    # Kept for each number of rounds: a later call goes on from there.
    while len(self._largest) <= rounds:
      self._add_round()
    return math.sqrt(self._largest[rounds])

  def _add_round(self) -> None:
    done = len(self._largest) - 1
    members = self._cohort(done + 1)
    # Level k has nodes of 2^k rounds; one that is not full is counted as if it were published.
    if done + 1 == 2 ** len(self._open):
      self._open.append(self._totals.copy())  # The new root has all rounds under it.
      self._moved += self._totals**2
    for level, counts in enumerate(self._open):
      if done % 2**level == 0:
        counts[:] = 0
      # (n + 1)^2 - n^2
      self._moved[members] += 2 * counts[members] + 1
      counts[members] += 1
    self._totals[members] += 1
    self._largest.append(int(self._moved.max()))


Accountant: TypeAlias = SampledGaussian | TreeGaussian


def gaussian_epsilon(mu: float, delta: float) -> float:
  """Returns epsilon at `delta` of a Gaussian mechanism whose mean moves by mu standard deviations.

  "Improving the Gaussian Mechanism for Differential Privacy" (Balle and Wang, 2018), theorem 8.
  """
  if mu == 0:
    return 0.0

  def excess(epsilon: float) -> float:
    return float(_hockey_stick(np.asarray(epsilon), mu)) - delta

  # So much noise that delta alone covers the difference: brentq would find no sign change.
  if excess(0.0) <= 0:
    return 0.0
  most = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # A bound from Renyi divergences.
  return float(optimize.brentq(excess, 0.0, most, xtol=1e-9))


def noise_multiplier_for(
  epsilon: float, make: Callable[[float], Accountant], rounds: int, delta: float
) -> float:
  """Returns the least noise multiplier z >= 0.05, to four digits, with which a run meets epsilon.

  Args:
    epsilon: The target, > 0.
    make: A function from a noise multiplier to an accountant.
    rounds: Number of rounds of the run.
    delta: The delta of this epsilon, in (0, 1).

  Raises:
    ValueError: If no noise multiplier up to 4^9 is enough, or an argument is out of its range.
  """
  validation.above_zero('epsilon', epsilon, 'give an epsilon such as 8')
  _check(rounds, delta)

  def excess(log_z: float) -> float:
    return float(make(math.exp(log_z)).epsilon(rounds, delta)) - epsilon

  # In logarithms, since z spans magnitudes; epsilon falls with z, and `excess` with it.
  low = math.log(0.05)
  high = math.log(1.0)
  while excess(high) > 0:
    low = high
    high += math.log(4)
    if high > math.log(1e6):
      raise ValueError(f'no noise reaches epsilon {epsilon:g}, delta {delta:g} in {rounds} rounds.')
  if excess(low) <= 0:
    return math.exp(low)
  z = math.exp(optimize.brentq(excess, low, high, xtol=1e-5))
  # Upwards to four digits, so that the z that is written down meets epsilon, too.
  step = 10.0 ** (math.floor(math.log10(z)) - 3)
  z = math.ceil(z / step) * step
  if excess(math.log(z)) > 0:  # Rounding has made it too small.
    z += step
  return z


def count_stddev(clients_per_round: int, given: float | None = None) -> float:
  """Returns the standard deviation of noise on a count: `given`, or 1/20 of a cohort if None."""
  if given is not None:
    return given
  return clients_per_round / 20


def update_noise_multiplier(noise_multiplier: float, stddev: float) -> float:
  """Returns the noise multiplier of the updates if `noise_multiplier` includes a noisy count.

  `stddev` is the count's standard deviation; a ValueError is raised if it is too small. Theorem 1
  of "Differentially Private Learning with Adaptive Clipping" (Andrew et al., 2021).
  """
  _checked_noise(noise_multiplier)
  if noise_multiplier >= 2 * stddev:
    raise ValueError(
      f'count_stddev must be above {noise_multiplier / 2:g}, half the noise multiplier, found'
      f' {stddev:g} (a twentieth of a cohort unless given): give more, a larger cohort, less noise,'
      ' or adaptive=false.'
    )
  # 1/z^2 = 1/z_updates^2 + 1/(2 stddev)^2. As a client adds 1/2 or -1/2 to the count, 2 stddev is
  # the count's noise multiplier.
  return float((noise_multiplier**-2 - (2 * stddev) ** -2) ** -0.5)


def default_delta(num_clients: int) -> float:
  """Returns N^-1.1 for N clients ("Learning Differentially Private ...", McMahan et al., 2018)."""
  return float(max(num_clients, 2) ** -1.1)


def _checked_noise(noise_multiplier: float) -> float:
  return float(validation.above_zero('noise_multiplier', noise_multiplier, 'give 1.0, say'))


def _check(rounds: int, delta: float) -> None:
  validation.whole('rounds', rounds, 'give a number of rounds')
  validation.above_zero('delta', delta, 'give a delta such as 1e-5')
  validation.in_unit_interval('delta', delta, 'give a delta such as 1e-5')


def _hockey_stick(epsilon: np.ndarray, mu: float) -> np.ndarray:
  """Returns the hockey-stick divergence of N(mu, 1) from N(0, 1) at exp(epsilon), epsilon >= 0."""
  # exp(epsilon) alone overflows; its product with the small probability does not.
  upper = special.ndtr(mu / 2 - epsilon / mu)
  return upper - np.exp(epsilon + special.log_ndtr(-mu / 2 - epsilon / mu))
