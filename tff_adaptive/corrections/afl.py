"""AFL: the worst mixture of the clients counts."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class AFL(base.Correction):
  """AFL: client i counts by lambda_i, which rises with its loss: lambda <- P(lambda + rate F).

  F_i is the client's mean loss at the model that it received, times N / |S| for members of the
  cohort and 0 for others; P projects on the simplex. The update is N lambda_i g_i. lambda begins at
  1 / N. "Agnostic Federated Learning" (Mohri et al., 2019), Algorithm 1 (STOCHASTIC-AFL), whose
  result is the mean of the models of all rounds; here it is the last one.

  Attributes:
    lambda_rate: The rate of lambda, >= 0. 0 gives FedAvg.
    num_clients: N.
  """

  lambda_rate: float = option(
    0.001, 'Rate at which clients with a large loss gain weight', validation.at_least_zero
  )
  num_clients: int = 1
  name = 'afl'
  title = 'AFL'
  summary = 'clients count by weights on the simplex that rise with their losses'
  paper = 'Mohri et al., "Agnostic Federated Learning", ICML 2019, Algorithm 1'
  client_weighting = 'uniform'
  combine_uploads = 'sum'
  uploads_what = 'its loss'
  sends_whole = True
  sends_exact = True  # A loss at its place; rounded zeros beside it would be losses of others.
  needs_batching = 'its clients are known by their numbers'

  def server_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(shares=tf.fill([self.num_clients], 1.0 / self.num_clients))

  def broadcast(self, server_state: Any) -> Any:
    return server_state['shares']

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    # With N lambda_i the mean over a cohort drawn uniformly has the expectation sum lambda_i g_i.
    factor = self.num_clients * tf.gather(client.broadcast, client.index)
    return base.combine(lambda g: base.scale(factor, g), g_i)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # The sum of these rows over the cohort, [N], has each client's loss at its place. They are
    # losses at the received model, with which the paper's step of lambda is taken, too.
    return (), client.full_loss() * tf.one_hot(client.index, self.num_clients)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    # N / |S| makes up for the clients whose losses are not known in this round.
    losses = tf.math.divide_no_nan(self.num_clients * server.uploads, server.cohort)
    # Upwards: lambda maximises the mixture's loss that theta minimises.
    shares = on_simplex(server_state['shares'] + self.lambda_rate * losses)
    return collections.OrderedDict(shares=shares), server.g_bar


def on_simplex(values: tf.Tensor) -> tf.Tensor:
  """Returns the nearest point whose entries are not negative and have the sum 1 (Euclidean)."""
  # The projection is max(values - threshold, 0) with the threshold that makes the sum 1.
  descending = tf.sort(values, direction='DESCENDING')
  excess = tf.cumsum(descending) - 1.0
  ranks = tf.range(1.0, tf.cast(tf.size(values), tf.float32) + 1.0)
  # The largest entries stay above 0; their number is the last rank where this holds.
  num_positive = tf.reduce_sum(tf.cast(descending * ranks > excess, tf.int32))
  threshold = tf.gather(excess / ranks, num_positive - 1)
  return tf.maximum(values - threshold, 0.0)
