"""FedExP: the server's step grows with the clients' disagreement."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class FedExP(base.Correction):
  """FedExP: multiplies the server's step by max(1, mean ||g_i||^2 / (2 (||g-bar||^2 + eps))).

  "FedExP: Speeding Up Federated Averaging via Extrapolation" (Jhunjhunwala et al., 2023), equation
  (7) and Algorithm 1. g-bar is the mean of the clients' updates g_i; both means are weighted alike.
  `inference_weights` returns the mean of the last two global models (section 4). The authors' code
  multiplies eps by the cohort's size; the paper's formula does not. Of compressed updates the norms
  are those of what the server decodes.

  Attributes:
    eps: The number that is added to ||g-bar||^2, >= 0.
  """

  eps: float = option(
    1e-3,
    'Added to the squared norm of the mean update, >= 0',
    validation.at_least_zero,
    'the paper tunes it between 1e-3 and 1e-1',
  )
  name = 'fed_exp'
  title = 'FedExP'
  summary = "a server step that grows with the disagreement of the clients' updates"
  paper = 'Jhunjhunwala et al., "FedExP", ICLR 2023, Algorithm 1'
  client_weighting = 'uniform'
  uploads_what = 'the squared norm of its update'
  combine_uploads = 'weighted'

  def server_state(self, weights: Weights) -> Any:
    # The global model before the last server step; before any step both are the initial model.
    return weights

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return (), base.squared_norm(g_i)

  def compressed_upload(self, upload: Any, share: tf.Tensor) -> Any:
    # g-bar is the mean of what the server decodes, so the norms must be those of the same vectors.
    return share * upload

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    # Equation (7): the mean of ||g_i||^2 is the upload, combined with the weights of g-bar.
    below = 2 * (base.squared_norm(server.g_bar) + self.eps)
    factor = tf.maximum(1.0, tf.math.divide_no_nan(server.uploads, below))
    # The factor multiplies the step and not g-bar: Adam, say, would divide a factor of g-bar
    # out again.
    return server.theta, server.g_bar, factor

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    # Section 4: the last iterates oscillate around the minimum, their mean is nearer to it.
    return base.combine(lambda a, b: (a + b) / 2, tuple(server_state), theta)
