"""Weights of a client's own: what FedPer, LG-FedAvg, FedRep and FedBN share."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from tff_adaptive._utils import weight_groups
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, NamedWeight, Weights


@dataclasses.dataclass(frozen=True)
class KeptWeights(base.Correction):
  """The base class of parts with weights that stay at the client from round to round.

  A client's own model has its own weights in these places, and elsewhere the global model's. A
  client begins its first round with the initial ones.

  Attributes:
    layers: The weights that stay, as `weight_groups.select` takes them.
  """

  layers: str = option('head', weight_groups.HELP, weight_groups.check)
  evaluates_mean = False

  def resolved(self, weights: Sequence[NamedWeight]) -> base.Correction:
    return self.with_groups(stays=weight_groups.select('layers', self.layers, weights))

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(own=base.only(self.stays, weights))

  def begin(self, client: ClientRound, theta: Weights) -> Weights:
    return base.merged(self.stays, client.client_state['own'], theta)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # In theta_0 the weights that stay are those with which the client began, not the server's.
    theta_i = base.combine(tf.subtract, client.theta_0, g_i)
    return collections.OrderedDict(own=base.only(self.stays, theta_i)), ()

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    return base.merged(self.stays, client_state['own'], theta)
