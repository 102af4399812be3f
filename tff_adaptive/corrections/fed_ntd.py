"""FedNTD: distillation of what the received model says of the wrong classes."""

from __future__ import annotations

import dataclasses

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import Batch, ClientRound


@dataclasses.dataclass(frozen=True)
class FedNTD(base.Correction):
  """FedNTD: beta T^2 KL(q' || q) is added to the loss, where q leaves the true class out.

  q is the softmax of the logits divided by T over the classes other than the example's label, and
  q' the same at the model that the client received. "Preservation of the Global Knowledge by
  Not-True Distillation in Federated Learning" (Lee et al., 2022), equation (5), with the factor T^2
  of the authors' code.

  Attributes:
    distillation: beta, >= 0. 0 gives FedAvg.
    softening: T, > 0.
  """

  distillation: float = option(1.0, 'Weight of the distillation', validation.at_least_zero)
  softening: float = option(3.0, 'Temperature of the distillation', validation.above_zero)
  name = 'fed_ntd'
  title = 'FedNTD'
  summary = 'the received model is distilled over the classes that are not true'
  paper = 'Lee et al., "Preservation of the Global Knowledge ...", NeurIPS 2022, equation (5)'

  def loss(self, client: ClientRound, batch: Batch) -> tf.Tensor:
    if self.distillation == 0:
      return batch.loss
    logits = batch.logits()
    # -1e9 takes the true class out of the softmax; minus infinity times 0 would be NaN.
    is_true = tf.one_hot(batch.y, logits.shape[-1])
    of_client = tf.nn.log_softmax(logits / self.softening - 1e9 * is_true)
    # The received model is constant in a round, so no gradient flows through its logits.
    received = batch.logits(batch.outputs_at(client.theta_0))
    taught = tf.nn.log_softmax(received / self.softening - 1e9 * is_true)
    # Of the true class both probabilities are 0, and so is its product.
    divergence = tf.reduce_sum((1 - is_true) * tf.exp(taught) * (taught - of_client), -1)
    # Softened logits have gradients smaller by T^2, which this factor gives back (Hinton et al.).
    distilled = self.softening**2 * batch.mean(divergence)
    return batch.loss + self.distillation * tf.cast(distilled, batch.loss.dtype)
