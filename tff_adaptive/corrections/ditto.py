"""Ditto: a model of each client's own, pulled towards the global one."""

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
class Ditto(base.Correction):
  """Ditto: beside FedAvg's model a client trains its own v: v <- v - eta_l (g(v) + lam (v - x)).

  x is the model that the client received. "Ditto: Fair and Robust Federated Learning Through
  Personalization" (Li et al., 2021), Algorithm 1. v begins at the initial model, and takes as many
  steps as the other model, on the same batches.

  Attributes:
    lam: Weight of the pull towards x, >= 0. 0 gives local training.
  """

  lam: float = option(
    0.1, "Weight of the pull between a client's own model and the other", validation.at_least_zero
  )
  name = 'ditto'
  title = 'Ditto'
  summary = 'each client also trains a model of its own, near the global one'
  paper = 'Li et al., "Ditto", ICML 2021, Algorithm 1'
  assumes_sgd = "a client's own model is trained by SGD with the client rate"
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    # v goes on from round to round; only theta_i begins anew at the global model.
    return collections.OrderedDict(own=weights)

  def local_state(self, client: ClientRound) -> Any:
    return client.client_state['own']

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    # The pull is towards x of this round (theta_0), not towards theta_i, which moves beside v.
    personal_weights = client.local_state
    direction = base.combine(
      lambda g, v, x: g + self.lam * (v - x),
      client.gradient_at(personal_weights),
      personal_weights,
      client.theta_0,
    )
    # g passes unchanged, so what the server aggregates is FedAvg's update to the bit.
    return g, base.combine(
      lambda v, d: v - base.scale(client.eta_l, d), personal_weights, direction
    )

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return collections.OrderedDict(own=client.local_state), ()

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    return client_state['own']
