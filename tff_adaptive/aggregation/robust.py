"""Robust rules, which limit what a minority of clients can do to the aggregate.

Each rule gets all updates of a cohort, [m, d]; `gathering` says what that costs. `factories` builds
TFF aggregation factories from the rules.
"""

import collections
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_adaptive.aggregation import gathering

# Coordinates that are sorted at once: a block of m clients is a copy of m times as many numbers.
_BLOCK = 2**16
_ROUNDING = 1e-9  # Of the trimmed share times the number of clients.


def median(updates: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  """Returns the median of each coordinate, [d]; all clients count the same.

  "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates" (Yin et al., ICML
  2018), option I of Algorithm 1. Of an even number of clients it is the mean of the two middle
  values.
  """
  del weights
  # Known only when it runs: clients that diverged are left out before.
  num_clients = tf.shape(updates)[0]

  def of_block(ordered: tf.Tensor) -> tf.Tensor:
    lower = ordered[:, (num_clients - 1) // 2]
    upper = ordered[:, num_clients // 2]
    return (lower + upper) / 2

  return _by_sorted_blocks(of_block, updates)


@dataclasses.dataclass(frozen=True)
class TrimmedMean:
  """The mean of each coordinate without its k largest and k smallest values.

  All clients count the same. Yin et al., ICML 2018, option II of Algorithm 1.

  Attributes:
    trim: beta in [0, 1/2); k is beta m, rounded down.
  """

  trim: float = 0.1

  def cut(self, num_clients: int) -> int:
    """Returns k."""
    return math.floor(self.trim * num_clients + _ROUNDING)

  def __call__(self, updates: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the trimmed mean, [d]."""
    del weights
    num_clients = tf.shape(updates)[0]
    # In float64 and with a little added: 0.29 * 100 is 28.999999999999996, which would cut 28.
    share = self.trim * tf.cast(num_clients, tf.float64)
    cut = tf.cast(tf.floor(share + _ROUNDING), tf.int32)
    return _by_sorted_blocks(
      lambda ordered: tf.reduce_mean(ordered[:, cut : num_clients - cut], 1), updates
    )


@dataclasses.dataclass(frozen=True)
class Krum(gathering.StatefulRule):
  """The mean of the updates that are nearest to their neighbours; all clients count the same.

  "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent" (Blanchard et al.,
  NeurIPS 2017). The score of an update is the sum of the squared distances to its m - f - 2 nearest
  others, or to the nearest alone if that number is below 1. Of equal scores that of the first
  client counts as lower.

  Attributes:
    attackers: f, the number of clients in a cohort that may send anything. The paper's guarantee
      needs 2 f + 2 < m.
    selected: The number of updates with the lowest scores that are averaged: 1 is Krum, a larger
      number Multi-Krum. None means m - f.
  """

  attackers: int = 1
  selected: int | None = 1

  def combine(self, state: Any, updates: tf.Tensor, weights: tf.Tensor) -> gathering.Outcome:
    """See `gathering.StatefulRule.combine`."""
    del weights
    scores = self.scores(updates)
    num_clients = tf.shape(updates)[0]
    wanted = num_clients - self.attackers
    if self.selected is not None:
      wanted = self.selected
    wanted = tf.clip_by_value(wanted, 1, num_clients)
    order = tf.argsort(scores, stable=True)
    nearest = tf.sort(order[:wanted])  # In the order of the clients, for equal bits.
    aggregate = tf.reduce_mean(tf.gather(updates, nearest), 0)
    left_out = tf.cast(num_clients - wanted, tf.float32)
    return gathering.Outcome(aggregate, state, collections.OrderedDict(left_out_clients=left_out))

  def scores(self, updates: tf.Tensor) -> tf.Tensor:
    """Returns the score of each update, [m]."""
    distances = _squared_distances(updates)
    num_clients = tf.shape(updates)[0]
    infinite = tf.fill([num_clients], tf.cast(math.inf, distances.dtype))
    distances = tf.linalg.set_diag(distances, infinite)  # A client is no neighbour of its own.
    # m - f - 2 of the paper, within what a small cohort has.
    neighbours = tf.maximum(num_clients - self.attackers - 2, 1)
    neighbours = tf.minimum(neighbours, num_clients - 1)
    return tf.reduce_sum(tf.sort(distances, axis=1)[:, :neighbours], 1)


@dataclasses.dataclass(frozen=True)
class GeometricMedian:
  """The point with the least weighted sum of distances to the updates: RFA's smoothed Weiszfeld.

  "Robust Aggregation for Federated Learning" (Pillutla et al., IEEE TSP 2022), Algorithm 2. It
  begins at the weighted mean.

  Attributes:
    iterations: Number of iterations, >= 1.
    smoothing: nu, the least distance that counts, above 0.
  """

  iterations: int = 4
  smoothing: float = 1e-6

  def __call__(self, updates: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Returns the geometric median, [d]."""
    # A fixed number of steps, as in RFA: each is one more secure mean there.
    point = _weighted_mean(updates, weights)
    least = tf.constant(self.smoothing, tf.float64)
    for _ in range(self.iterations):
      distances = tf.maximum(_distances(updates, point), least)
      # A weight over the distance, which nu keeps from growing without bound at an update itself.
      shares = tf.cast(weights, tf.float64) / distances
      shares /= tf.reduce_sum(shares)
      point = _weighted_sum(updates, tf.cast(shares, updates.dtype))
    return point


@dataclasses.dataclass(frozen=True)
class NormBounding(gathering.StatefulRule):
  """The weighted mean of updates that are scaled down to a 2-norm.

  "Can You Really Backdoor Federated Learning?" (Sun et al., 2019), with a given norm.

  Attributes:
    norm: The largest norm, above 0. None means the median of the norms in the cohort.
  """

  norm: float | None = None

  def combine(self, state: Any, updates: tf.Tensor, weights: tf.Tensor) -> gathering.Outcome:
    """See `gathering.StatefulRule.combine`."""
    norms = _norms(updates)
    bound = _median_of(norms)
    if self.norm is not None:
      bound = tf.cast(self.norm, norms.dtype)
    # The weights are still divided by their whole sum: a client that is scaled down counts less.
    scales = _clipping(norms, bound)
    aggregate = _weighted_sum(updates, scales * weights / tf.reduce_sum(weights))
    measurements = collections.OrderedDict(
      norm_bound=tf.cast(bound, tf.float32),
      bounded_clients=tf.reduce_sum(tf.cast(norms > bound, tf.float32)),
    )
    return gathering.Outcome(aggregate, state, measurements)


@dataclasses.dataclass(frozen=True)
class CentredClipping(gathering.StatefulRule):
  """The last aggregate plus the weighted mean of the clipped differences from it.

  "Learning from History for Byzantine Robust Optimization" (Karimireddy et al., ICML 2021),
  Algorithm 2: v <- v + sum_i w_i (u_i - v) min(1, tau / ||u_i - v||). v begins at the aggregate of
  the round before, at first at 0. The paper's clients send momentum; these send their updates.

  Attributes:
    radius: tau, above 0. None means the median of the distances ||u_i - v||.
    iterations: Number of iterations in a round, >= 1.
  """

  radius: float | None = None
  iterations: int = 1

  def initial_state(self, num_coordinates: int, dtype: tf.DType) -> tf.Tensor:
    """Returns v before the first round."""
    return tf.zeros([num_coordinates], dtype)

  def combine(self, state: tf.Tensor, updates: tf.Tensor, weights: tf.Tensor) -> gathering.Outcome:
    """See `gathering.StatefulRule.combine`."""
    centre = state
    shares = weights / tf.reduce_sum(weights)
    for _ in range(self.iterations):
      differences = updates - centre
      distances = _norms(differences)
      radius = _median_of(distances)
      if self.radius is not None:
        radius = tf.cast(self.radius, updates.dtype)
      # The last iteration's number and radius are measured.
      clipped = tf.reduce_sum(tf.cast(distances > radius, tf.float32))
      centre += _weighted_sum(differences, shares * _clipping(distances, radius))
    measurements = collections.OrderedDict(
      clipping_radius=tf.cast(radius, tf.float32), clipped_clients=clipped
    )
    return gathering.Outcome(centre, centre, measurements)


def _by_sorted_blocks(function: Callable[[tf.Tensor], tf.Tensor], updates: tf.Tensor) -> tf.Tensor:
  """Returns [d], from a function of some coordinates' values in rising order, [b, m] -> [b]."""
  num_coordinates = updates.shape[1]
  pieces: list[tf.Tensor] = []
  for start in range(0, num_coordinates, _BLOCK):
    block = updates[:, start : start + _BLOCK]
    with tf.control_dependencies(pieces[-1:]):  # One block at a time, for the memory.
      ordered = tf.sort(tf.transpose(block), axis=1)
    pieces.append(function(ordered))
  return tf.concat(pieces, 0)


def _squared_distances(updates: tf.Tensor) -> tf.Tensor:
  """Returns the squared distances of all pairs, [m, m].

  A product of matrices would be quicker, and lose the digits of updates that are close.
  """

  def to_all(update: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.math.squared_difference(updates, update), 1)

  return tf.map_fn(to_all, updates, parallel_iterations=1)


def _norms(updates: tf.Tensor) -> tf.Tensor:
  return tf.norm(updates, axis=1)


def _distances(updates: tf.Tensor, point: tf.Tensor) -> tf.Tensor:
  """Returns the distances of the updates from a point, float64 [m].

  Neither a difference nor the square of one overflows, whatever finite numbers the updates have.
  """
  halves = updates / 2 - point / 2
  largest = tf.reduce_max(tf.abs(halves), 1)
  norms = _norms(tf.math.divide_no_nan(halves, largest[:, tf.newaxis]))
  return 2 * tf.cast(largest, tf.float64) * tf.cast(norms, tf.float64)


def _median_of(values: tf.Tensor) -> tf.Tensor:
  """Returns the median of [m] values."""
  ordered = tf.sort(values)
  size = tf.size(values)
  return (ordered[(size - 1) // 2] + ordered[size // 2]) / 2


def _clipping(norms: tf.Tensor, bound: tf.Tensor) -> tf.Tensor:
  """Returns the factors min(1, bound / norm)."""
  # Where the norm is 0, bound / norm is infinite or NaN, but the other branch is taken.
  return tf.where(norms > bound, bound / norms, tf.ones_like(norms))


def _weighted_sum(updates: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  return tf.linalg.matvec(updates, weights, transpose_a=True)


def _weighted_mean(updates: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
  return _weighted_sum(updates, weights / tf.reduce_sum(weights))
