"""FedDyn: dynamic regularisation of the clients' losses."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, RegisteredClients, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class FedDyn(base.Correction):
  """FedDyn, in the form of Algorithm 1 of "AdaBest" (Varno et al., 2022).

  "Federated Learning Based on Dynamic Regularization" (Acar et al., 2021) introduced FedDyn. See
  `corrections.base` for symbols. The local gradient is g - mu_i h_i - mu_i (theta^{t-1} - theta).
  A client then sets h_i <- h_i + g_i. The h_i of the papers include the factor mu_i; the result is
  the same if mu_i is constant. The server sets h <- h + |S|/N g-bar and descends along g-bar + h.

  With `Sam` this is FedSpeed (Sun et al., 2023) with alpha = 1, lambda = 1 / mu.
  As in FedSpeed's published code, the perturbation is normalised, and h is the mean of all clients'
  h_i, the dual variables. Algorithm 1 of Sun et al. has the perturbation rho g, and the mean over
  the cohort.

  Attributes:
    mu: Weight of the regulariser, finite and >= 0.
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
    mean_examples: The mean number of examples of a client, with `scale_mu`.
    scale_mu: Whether mu_i = mu mean_examples / n_i, as in the authors' code for clients of unequal
      sizes n_i. If False, mu_i = mu.
  """

  mu: float = option(0.02, base.MU, validation.at_least_zero)
  num_clients: int = 0
  mean_examples: float | None = None
  scale_mu: bool = option(False, base.SCALE_MU)
  name = 'fed_dyn'
  title = 'FedDyn'
  summary = 'dynamic regularisation of the client losses'
  adds_up = ('update',)
  paper = 'Acar et al., "Federated Learning Based on Dynamic Regularization", ICLR 2021'

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.scale_mu != (self.mean_examples is not None):
      raise ValueError(
        f'scale_mu={self.scale_mu} with mean_examples={self.mean_examples}: give scale_mu=True and'
        ' the mean number of examples, or neither for the same mu for all.'
      )
    if self.mean_examples is not None:
      validation.field(
        self, 'mean_examples', validation.above_zero, 'give None for the same mu for all'
      )

  @classmethod
  def configure(
    cls, values: Mapping[str, Any], clients: RegisteredClients | None = None
  ) -> base.Correction:
    """Like `Correction.configure`, but `mean_examples` is set only if `scale_mu` is true."""
    registered = cls.registered(clients)
    if not values['scale_mu']:
      registered['mean_examples'] = None
    return cls(**values, **registered)

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights))

  def server_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights))

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns g - mu_i h_i - mu_i (theta^{t-1} - theta)."""
    mu = tf.constant(self.mu, tf.float32)
    # A client without examples takes no step; mu_i is then 0 in place of infinity.
    if self.mean_examples is not None:
      mu = tf.math.divide_no_nan(self.mu * self.mean_examples, client.num_examples)
    return base.combine(
      lambda g, h, x0, x: g - base.scale(mu, h + x0 - x),
      g,
      client.client_state['h'],
      client.theta_0,
      theta,
    )

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # Algorithm 1's h_i + mu g_i without the factor mu, which `gradient` applies. A client that no
    # longer moves away from theta^{t-1} has the gradient mu h_i there.
    return collections.OrderedDict(h=base.combine(tf.add, client.client_state['h'], g_i)), ()

  def after_loss(self, client_state: Any, lost_update: Weights, lost_upload: Any) -> Any:
    """Returns the sum of the updates that the server decoded, whose mean is its h."""
    return collections.OrderedDict(h=base.combine(tf.subtract, client_state['h'], lost_update))

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # With equal weights h stays the mean of all N clients' h_i, of which those of the cohort moved.
    # It does not depend on mu: with mu = 0 this is not FedAvg.
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, g: h + base.scale(share, g), server_state['h'], server.g_bar)
    # theta^t = theta-bar^t - h^t = theta^{t-1} - (g-bar + h), with server SGD of rate 1.
    return collections.OrderedDict(h=h), base.combine(tf.add, server.g_bar, h)
