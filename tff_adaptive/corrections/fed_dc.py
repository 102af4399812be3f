"""FedDC: drifts that the clients learn."""

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
class FedDC(base.Correction):
  """FedDC: the local gradient is g + alpha (theta - (x - h_i)) - c_i + c; h_i <- h_i - g_i.

  h_i is the client's drift, c_i and c are SCAFFOLD's control variates. The new global model is the
  mean of the cohort's models plus the mean of all clients' h_i. "FedDC: Federated Learning with
  Non-IID Data via Local Drift Decoupling and Correction" (Gao et al., 2022), Algorithm 1 and the
  authors' code, without its weights by the number of examples.

  Attributes:
    drift_weight: alpha, >= 0.
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
  """

  drift_weight: float = option(0.1, 'Weight of the drift in the loss', validation.at_least_zero)
  num_clients: int = 0
  name = 'fed_dc'
  title = 'FedDC'
  summary = 'clients learn their drift, which the server adds to the mean model'
  paper = 'Gao et al., "FedDC", CVPR 2022, Algorithm 1'
  assumes_sgd = 'its c_i is the change of the model over K_i eta_l'
  uploads_what = 'the change of c_i'
  adds_up = ('update', 'upload')

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights), c=base.zeros(weights))

  def server_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights), c=base.zeros(weights))

  def broadcast(self, server_state: Any) -> Any:
    return server_state['c']

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    state = client.client_state
    # The gradient of alpha/2 ||theta - (x - h_i)||^2, where theta + h_i is the model without drift.
    pulled = base.combine(
      lambda g, y, x, h: g + self.drift_weight * (y - x + h), g, theta, client.theta_0, state['h']
    )
    return base.combine(lambda g, ci, c: g - ci + c, pulled, state['c'], client.broadcast)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    state = client.client_state
    mean = base.mean_gradient(client, g_i, steps)
    # Of c_i, as in SCAFFOLD's option II: c_i+ = c_i - c + g_i / (K_i eta_l).
    change = base.combine(tf.subtract, mean, client.broadcast)
    # h_i grows by theta_i - x, the client's move, which is -g_i.
    h = base.combine(tf.subtract, state['h'], g_i)
    c = base.combine(tf.add, state['c'], change)
    return collections.OrderedDict(h=h, c=c), change

  def after_loss(self, client_state: Any, lost_update: Weights, lost_upload: Any) -> Any:
    """Returns the h_i and c_i that the server knows of, so that it has their means."""
    return collections.OrderedDict(
      h=base.combine(tf.add, client_state['h'], lost_update),
      c=base.combine(tf.subtract, client_state['c'], lost_upload),
    )

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # h is the mean of all N clients' h_i, of which |S| have moved, and c that of all c_i.
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, g: h - base.scale(share, g), server_state['h'], server.g_bar)
    c = base.combine(lambda c, d: c + base.scale(share, d), server_state['c'], server.uploads)
    # The server's step gives x - (g-bar - h) = theta-bar + h, with SGD of rate 1.
    return collections.OrderedDict(h=h, c=c), base.combine(tf.subtract, server.g_bar, h)
