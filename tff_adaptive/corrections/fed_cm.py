"""FedCM: client-level momentum."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_adaptive import registry
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights

_ENTRY = registry.ALGORITHMS['fed_cm']


@dataclasses.dataclass(frozen=True)
class FedCM(base.Correction):
  """Local gradient: alpha g + (1 - alpha) D. Server: D <- mean(g_i / (K_i eta_l)).

  "FedCM: Federated Learning with Client-level Momentum" (Xu et al., 2021), Algorithm 1. Each client
  has its own K_i, so that D is the mean of the local directions. D is zero in the first round.

  Attributes:
    alpha: Weight of the local gradient, in (0, 1]. 1 gives FedAvg.
  """

  alpha: float = _ENTRY.default('alpha')
  name = 'fed_cm'
  combine_uploads = 'weighted'
  _entry = _ENTRY

  def server_state(self, weights: Weights) -> Any:
    return base.zeros(weights)

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    return base.combine(lambda g, d: self.alpha * g + (1 - self.alpha) * d, g, client.broadcast)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return (), base.mean_gradient(client, g_i, steps)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    return server.uploads, server.g_bar
