"""SAM: sharpness-aware minimization at the clients."""

from __future__ import annotations

import dataclasses

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class Sam(base.Correction):
  """SAM: the gradient of a local step is that at theta + rho g / ||g||, on the same batch.

  "Generalized Federated Learning via Sharpness Aware Minimization" (Qu et al., 2022), Algorithm 1.
  Other parts correct this gradient: with FedCM this is MoFedSAM, with SCAFFOLD FedGAMMA, and with
  FedDyn FedSpeed. Full gradients (Mime, SCAFFOLD's option I) are those at theta^{t-1} itself.

  Attributes:
    rho: The radius, >= 0; 0 gives the plain gradient.
  """

  rho: float = option(0.05, 'Radius of sharpness-aware minimization', validation.at_least_zero)
  name = 'sam'
  title = 'SAM'
  summary = 'sharpness-aware minimization at the clients'
  paper = 'Qu et al., ICML 2022, Algorithm 1'

  def loss_gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    if self.rho == 0:
      return g
    # The norm of all weights together. Where the gradient is 0, the ascent step is 0, too.
    factor = tf.math.divide_no_nan(self.rho, base.norm(g))
    return client.gradient_at(base.combine(lambda w, g: w + base.scale(factor, g), theta, g))
