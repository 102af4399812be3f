"""Local steps along the last round's update: what FedAdamW, FedMuon and FedLADA share."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights

# The help of the hyperparameter that these methods have.
GLOBAL_SHARE = "Share of the last round's mean update that the local steps repeat"


@dataclasses.dataclass(frozen=True)
class WithLastUpdate(base.Correction):
  """The base class of parts whose local steps together also move by a share of the last update.

  With D the mean of the updates of the last round, 0 in the first, and K the planned steps, each
  step also moves by -global_share D / K. D is that of the last round's rate: with a schedule it is
  not rescaled, as in FedAdamW's code for language models. The authors' other programs multiply it
  by the present rate over the last one.

  Attributes:
    global_share: The share, in [0, 1].
  """

  global_share: float = option(0.5, GLOBAL_SHARE, validation.up_to_one)
  client_weighting = 'uniform'
  needs_batching = "it spreads the last round's update over the planned local steps"

  def server_state(self, weights: Weights) -> Any:
    return base.zeros(weights)

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def moved(self, client: ClientRound, before: Weights, after: Weights) -> Weights:
    # All steps of the round together move by -global_share D.
    share = self.global_share * tf.math.divide_no_nan(1.0, client.planned_steps)
    # y - x is the client optimizer's step; D is a pseudo-gradient, hence its minus.
    local_share = self._local_share()
    return base.combine(
      lambda x, y, d: x + local_share * (y - x) - base.scale(share, d),
      before,
      after,
      client.broadcast,
    )

  def _local_share(self) -> float:
    """Returns the factor of the client optimizer's own step."""
    return 1.0 - self.global_share

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    return server.g_bar, server.g_bar
