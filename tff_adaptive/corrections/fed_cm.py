"""FedCM: client-level momentum."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import Counts, option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class FedCM(base.Correction):
  """FedCM: the local gradient g becomes alpha g + (1 - alpha) M, with the last round's direction M.

  M is the cohort's mean of the updates, each divided by the client's number of local steps and by
  the client learning rate; it is zero in the first round. "FedCM: Federated Learning with
  Client-level Momentum" (Xu et al., 2021), Algorithm 1.

  Attributes:
    alpha: Weight of the local gradient, in (0, 1]. 1 gives FedAvg.
  """

  alpha: float = option(
    0.1,
    'Weight of the local gradient, in (0, 1]; 1 is FedAvg',
    validation.in_half_open_unit_interval,
    'the paper uses 0.1',
  )
  name = 'fed_cm'
  title = 'FedCM'
  summary = 'local gradients mixed with the direction of the last round'
  paper = 'Xu et al., "FedCM: Federated Learning with Client-level Momentum", 2021, Algorithm 1'
  client_weighting = 'uniform'
  assumes_sgd = 'its direction is the change of the model over K_i eta_l'
  uploads_what = 'g_i / (K_i eta_l)'
  combine_uploads = 'weighted'

  @classmethod
  def published_counts(cls, values: Mapping[str, Any]) -> Counts:
    # As in the paper: theta and M down, and the update alone up, from which M follows if all K_i
    # are equal. Here clients also send g_i / (K_i eta_l), because theirs may differ.
    return Counts(down=2)

  def server_state(self, weights: Weights) -> Any:
    return base.zeros(weights)

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    return base.combine(lambda g, d: self.alpha * g + (1 - self.alpha) * d, g, client.broadcast)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # Divided at the client, which alone knows its K_i; M is then in the units of g.
    return (), base.mean_gradient(client, g_i, steps)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    # M is replaced and not averaged over rounds: the momentum is in the clients' steps.
    return server.uploads, server.g_bar
