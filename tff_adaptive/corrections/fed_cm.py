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
  """FedCM: the local gradient g becomes alpha g + (1 - alpha) M, with the last round's direction M.

  M is the cohort's mean of the updates, each divided by the client's number of local steps and by
  the client learning rate; it is zero in the first round. "FedCM: Federated Learning with
  Client-level Momentum" (Xu et al., 2021), Algorithm 1.

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
