"""FedDyn: dynamic regularisation of the clients' losses."""

import collections
import dataclasses
from typing import Optional

import tensorflow as tf

from tff_adaptive import checks
from tff_adaptive.corrections import base


@dataclasses.dataclass(frozen=True)
class FedDyn(base.Correction):
  """FedDyn as AdaBest's Algorithm 1 states it.

  Local gradient: g - mu_i h_i - mu_i (theta^{t-1} - theta). Client: h_i <- h_i + g_i (kept without
  mu_i, which is applied at use: the same for a constant mu). Server: h <- h + |S|/N g-bar, and it
  descends along g-bar + h. Source: "Federated Learning Based on Dynamic Regularization" (Acar et
  al., 2021); "AdaBest" (Varno et al., 2022), Algorithm 1.

  Attributes:
    mu: Weight of the regulariser, finite and >= 0.
    num_clients: N, the number of registered clients.
    mean_examples: If given, the mean number of examples of a client: mu_i = mu mean_examples / n_i,
      as the authors' code does for unbalanced clients. None: mu_i = mu.
  """

  mu: float
  num_clients: int
  mean_examples: Optional[float] = None
  name = 'fed_dyn'
  is_stateful = True

  def __post_init__(self):
    checks.field(self, 'mu', checks.at_least_zero, 'the paper uses 0.02')
    checks.whole_number('num_clients', self.num_clients, 1, 'give the number of all clients')
    if self.mean_examples is not None:
      checks.field(self, 'mean_examples', checks.above_zero, 'give None for the same mu for all')

  def client_state(self, weights):
    return collections.OrderedDict(h=base.zeros(weights))

  def server_state(self, weights):
    return collections.OrderedDict(h=base.zeros(weights))

  def gradient(self, client, theta, g):
    """g - mu_i h_i - mu_i (theta^{t-1} - theta)."""
    mu = tf.constant(self.mu, tf.float32)
    if self.mean_examples is not None:
      mu = tf.math.divide_no_nan(self.mu * self.mean_examples, client.num_examples)
    return base.combine(
      lambda g, h, x0, x: g - base.scale(mu, h + x0 - x), g, client.kept['h'], client.theta_0, theta
    )

  def client_update(self, client, g_i, steps):
    return collections.OrderedDict(h=base.combine(tf.add, client.kept['h'], g_i)), ()

  def server_update(self, server_state, server):
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, g: h + base.scale(share, g), server_state['h'], server.g_bar)
    return collections.OrderedDict(h=h), base.combine(tf.add, server.g_bar, h)

  def h_norm(self, server_state):
    return base.norm(server_state['h'])
