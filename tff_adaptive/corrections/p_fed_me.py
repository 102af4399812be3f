"""pFedMe: Moreau envelopes as the clients' losses."""

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
class PFedMe(base.Correction):
  """pFedMe: a step descends along lam (y - p), where p nearly minimises R(p) + lam/2 ||p - y||^2.

  R is the loss of the step's batch. p begins the round at the model that the client received, and
  in each step moves `inner_steps` times: p <- p - inner_rate (g(p) + lam (p - y)), as in the
  authors' code. The last p is the client's own model. "Personalized Federated Learning with Moreau
  Envelopes" (T. Dinh et al., 2020), Algorithm 1. The paper's beta is the rate of the server's SGD.

  Attributes:
    moreau_lam: lam, > 0.
    inner_steps: How many times p moves in a local step, >= 1.
    inner_rate: The rate of p, > 0.
  """

  moreau_lam: float = option(15.0, 'Weight of the Moreau envelope', validation.above_zero)
  inner_steps: int = option(
    5, "Gradients of a client's own model in a local step", validation.count
  )
  inner_rate: float = option(
    0.05, "Learning rate of a client's own model, or of its trial steps", validation.at_least_zero
  )
  name = 'p_fed_me'
  title = 'pFedMe'
  summary = "the clients' losses are Moreau envelopes, whose minimisers are their own models"
  paper = 'T. Dinh et al., "Personalized Federated Learning with Moreau Envelopes", NeurIPS 2020'
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    # For `personal` alone: p begins each round at the received model.
    return collections.OrderedDict(own=weights)

  def local_state(self, client: ClientRound) -> Any:
    return client.theta_0

  def point(self, client: ClientRound, theta: Weights) -> Weights:
    # p, so that the first gradient of a step is already the one that p needs.
    return client.local_state

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    personal_weights = client.local_state
    for inner_step in range(self.inner_steps):
      if inner_step > 0:
        g = client.gradient_at(personal_weights)
      personal_weights = base.combine(self._moved, personal_weights, g, theta)
    # The gradient of the Moreau envelope at y, were p its minimiser.
    direction = base.combine(lambda y, p: self.moreau_lam * (y - p), theta, personal_weights)
    return direction, personal_weights

  def _moved(self, p: tf.Tensor, g: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return p - self.inner_rate * (g + self.moreau_lam * (p - y))

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return collections.OrderedDict(own=client.local_state), ()

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    return client_state['own']
