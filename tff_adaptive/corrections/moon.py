"""MOON: a contrastive loss between models."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import Batch, ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class Moon(base.Correction):
  """MOON: features near those of the received model, and far from those of the client's last one.

  With z the features of an example at the present weights, z' at the model that the client received
  and z'' at its model after its last round, mu times the mean of -log(e^(s' / T) / (e^(s' / T) +
  e^(s'' / T))) is added to the loss, where s' and s'' are the cosines of z with z' and z''. In a
  client's first round its last model is the initial one. "Model-Contrastive Federated Learning" (Li
  et al., 2021), equation (3).

  Attributes:
    contrast: mu, >= 0. 0 gives FedAvg.
    temperature: T, > 0.
  """

  contrast: float = option(1.0, 'Weight of the contrastive loss', validation.at_least_zero)
  temperature: float = option(0.5, 'Temperature of the contrastive loss', validation.above_zero)
  name = 'moon'
  title = 'MOON'
  summary = "a contrastive loss between the features of a client's and the received model"
  paper = 'Li et al., "Model-Contrastive Federated Learning", CVPR 2021, equation (3)'
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    # The whole model, because the features depend on all layers but the last.
    return collections.OrderedDict(ended=weights)

  def loss(self, client: ClientRound, batch: Batch) -> tf.Tensor:
    if self.contrast == 0:
      return batch.loss
    # The gradient goes through z alone: z' and z'' do not depend on the present weights.
    features = batch.features_at(batch.theta)
    near = _cosine(features, batch.features_at(client.theta_0)) / self.temperature
    far = _cosine(features, batch.features_at(client.client_state['ended'])) / self.temperature
    # Equation (3): -log(e^near / (e^near + e^far)) = log(1 + e^(far - near)), without overflow.
    return batch.loss + self.contrast * batch.mean(tf.nn.softplus(far - near))

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return collections.OrderedDict(ended=base.combine(tf.subtract, client.theta_0, g_i)), ()


def _cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Returns the cosines of features [B, size], float32 [B]."""
  return tf.reduce_sum(tf.math.l2_normalize(a, -1) * tf.math.l2_normalize(b, -1), -1)
