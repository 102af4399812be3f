"""FedInit: clients begin away from where they ended."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class FedInit(base.Correction):
  """FedInit: a client begins at x + beta (x - y'), where y' is its model after its last round.

  "Understanding How Consistency Works in Federated Learning via Stage-wise Relaxed Initialization"
  (Sun et al., 2023), Algorithm 1. In a client's first round y' is the model that it receives.

  Attributes:
    relaxation: beta, in [0, 1]. 0 gives FedAvg.
  """

  relaxation: float = option(
    0.1, 'How far clients begin away from the model of their last round', validation.up_to_one
  )
  name = 'fed_init'
  title = 'FedInit'
  summary = 'clients begin a little away from where they ended'
  paper = 'Sun et al., "Stage-wise Relaxed Initialization", NeurIPS 2023, Algorithm 1'
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    # In FL-Simulator a new client's y' is the initial model, so that one that comes late begins far
    # from x; `has_ended` = 0 lets it begin at x.
    return collections.OrderedDict(ended=weights, has_ended=tf.zeros([]))

  def begin(self, client: ClientRound, theta: Weights) -> Weights:
    state = client.client_state
    beta = self.relaxation * state['has_ended']
    return base.combine(
      lambda y, x, end: y + base.scale(beta, x - end), theta, client.theta_0, state['ended']
    )

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # theta_i, as g_i counts from theta_0 even if the client began elsewhere.
    ended = base.combine(tf.subtract, client.theta_0, g_i)
    return collections.OrderedDict(ended=ended, has_ended=tf.ones([])), ()
