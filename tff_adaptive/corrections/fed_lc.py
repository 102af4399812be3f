"""FedLC: logits that are calibrated by how often a client has each label."""

from __future__ import annotations

import dataclasses

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import Batch, ClientRound


@dataclasses.dataclass(frozen=True)
class FedLC(base.Correction):
  """FedLC: the logit of class c becomes f_c - tau n_c^(-1/4) in the cross-entropy.

  n_c is how many of the client's examples have the label c. "Federated Learning with Label
  Distribution Skew via Logits Calibration" (Zhang et al., 2022), equation (6). Classes that the
  client does not have are left out, the limit of the formula for n_c = 0.

  Attributes:
    calibration: tau, >= 0. 0 leaves only absent classes out.
  """

  calibration: float = option(1.0, 'Calibration of the logits', validation.at_least_zero)
  name = 'fed_lc'
  title = 'FedLC'
  summary = "logits calibrated by the client's label counts"
  paper = 'Zhang et al., "Federated Learning with Label Distribution Skew ...", ICML 2022'
  needs_batching = "it counts a client's labels before training"

  def loss(self, client: ClientRound, batch: Batch) -> tf.Tensor:
    logits = batch.logits()
    counts = client.label_counts(logits.shape[-1])
    # A rare class gets the larger shift, so its logit has to be larger for the same loss. At least
    # 1: 0 to the power -1/4 is infinite, and absent classes get -1e9 below.
    shift = self.calibration * tf.pow(tf.maximum(counts, 1.0), -0.25)
    absent = tf.where(counts > 0, 0.0, -1e9)  # Not infinity, whose gradient would be NaN.
    # The model's penalty, its class weights and what other parts added to the loss stay in it.
    calibrated = batch.loss_of_logits(logits - shift + absent)
    change = calibrated - batch.loss_of_logits(logits)
    return batch.loss + tf.cast(change, batch.loss.dtype)
