"""FedExP: the server's step grows with the clients' disagreement."""

import dataclasses
from typing import Any

import tensorflow as tf

from tff_adaptive import registry
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights

_ENTRY = registry.ALGORITHMS['fed_exp']


@dataclasses.dataclass(frozen=True)
class FedExP(base.Correction):
  """FedExP: multiplies the server's step by max(1, mean ||g_i||^2 / (2 (||g-bar||^2 + eps))).

  "FedExP: Speeding Up Federated Averaging via Extrapolation" (Jhunjhunwala et al., 2023), equation
  (7) and Algorithm 1. g-bar is the mean of the clients' updates g_i; both means are weighted alike.
  `inference_weights` returns the mean of the last two global models (section 4). The authors' code
  multiplies eps by the cohort's size; the paper's formula does not.

  Attributes:
    eps: The number that is added to ||g-bar||^2, >= 0.
  """

  eps: float = _ENTRY.default('eps')
  name = 'fed_exp'
  combine_uploads = 'weighted'
  _entry = _ENTRY

  def server_state(self, weights: Weights) -> Any:
    return weights  # The global model before the last server step.

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return (), base.squared_norm(g_i)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    below = 2 * (base.squared_norm(server.g_bar) + self.eps)
    factor = tf.maximum(1.0, tf.math.divide_no_nan(server.uploads, below))
    return server.theta, server.g_bar, factor

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    return base.combine(lambda a, b: (a + b) / 2, tuple(server_state), theta)
