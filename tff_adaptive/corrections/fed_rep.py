"""FedRep: the head first, then the shared representation."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights
from tff_adaptive.corrections.kept_weights import KeptWeights


@dataclasses.dataclass(frozen=True)
class FedRep(KeptWeights):
  """FedRep: a client's first steps train its own head alone, the others the shared weights alone.

  "Exploiting Shared Representations for Personalized Federated Learning" (Collins et al., 2021),
  Algorithm 1. The head, which stays at the client, is what `layers` names.

  Attributes:
    head_share: The share of a client's local steps that train the head, in [0, 1].
  """

  head_share: float = option(
    0.5, 'Share of the local steps that train the head alone', validation.up_to_one
  )
  name = 'fed_rep'
  title = 'FedRep'
  summary = 'the last layer stays at the client and is trained before the others'
  paper = 'Collins et al., "Exploiting Shared Representations ...", ICML 2021, Algorithm 1'
  assumes_sgd = 'each step moves the head or the other weights alone'
  needs_batching = 'it plans how many of the local steps train the head'
  one_step = 'trains the head or the other weights, and not both'

  def local_state(self, client: ClientRound) -> Any:
    return tf.zeros([])  # The number of steps taken.

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    step = client.local_state
    trains_head = tf.cast(step < self._head_steps(client.planned_steps), tf.float32)
    # What stays at the client is the head. Products and no branch, for groups of clients.
    factors = []
    for is_head in self.stays:
      if is_head:
        factors.append(trains_head)
      else:
        factors.append(1 - trains_head)
    return base.combine(base.scale, tuple(factors), g), step + 1

  def _head_steps(self, planned_steps: tf.Tensor) -> tf.Tensor:
    steps = tf.round(self.head_share * planned_steps)
    if self.head_share in (0.0, 1.0):
      return steps
    # Of two steps or more one at least trains the head, and one at least the other weights.
    others = planned_steps - 1
    return tf.clip_by_value(steps, tf.minimum(1.0, others), tf.maximum(others, 0.0))
