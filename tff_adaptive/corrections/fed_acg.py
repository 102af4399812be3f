"""FedACG: clients begin ahead of the global model, along its momentum."""

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
class FedACG(base.Correction):
  """FedACG: clients begin at x + lookahead m, and are pulled back to it by beta.

  m is the mean change of the clients' models from x in the last round, which with server SGD of
  rate 1 is the paper's m <- lookahead m + mean(y_i - x - lookahead m). "Communication-Efficient
  Federated Learning with Accelerated Client Gradient" (Kim et al., 2024), Algorithm 1.

  Attributes:
    lookahead: The paper's lambda, in [0, 1). 0 gives FedProx.
    pull: The paper's beta, the weight of the pull towards the first weights, >= 0.
  """

  lookahead: float = option(
    0.85, 'How far clients begin ahead of the global model', validation.in_unit_interval
  )
  pull: float = option(
    0.01,
    'Weight of the pull towards the weights with which a client begins',
    validation.at_least_zero,
  )
  name = 'fed_acg'
  title = 'FedACG'
  summary = 'clients begin ahead of the global model, along its momentum'
  paper = 'Kim et al., "Accelerated Client Gradient", CVPR 2024, Algorithm 1'
  client_weighting = 'uniform'

  @classmethod
  def published_counts(cls, values: Mapping[str, Any]) -> Counts:
    return Counts()  # The paper's server sends x + lambda m alone.

  def server_state(self, weights: Weights) -> Any:
    return base.zeros(weights)

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def begin(self, client: ClientRound, theta: Weights) -> Weights:
    return base.combine(lambda x, m: x + self.lookahead * m, theta, client.broadcast)

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    # Algorithm 1 pulls to where the client began, x + lambda m, and not to x as FedProx does.
    first = self.begin(client, client.theta_0)
    return base.combine(lambda g, y, x: g + self.pull * (y - x), g, theta, first)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # -g-bar is the models' mean move from x. They began at x + lambda m, so it has lambda m in it.
    return base.combine(tf.negative, server.g_bar), server.g_bar
