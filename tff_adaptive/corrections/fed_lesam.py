"""FedLESAM: sharpness-aware steps with one gradient."""

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
class FedLESAM(base.Correction):
  """FedLESAM: the gradient of a local step is that at theta + rho (x' - x) / ||x' - x||.

  x is the model that the client received, and x' the one that it received when it last took part;
  the difference stands for the global gradient. In a client's first round x' is the initial model.
  "Locally Estimated Global Perturbations are Better than Local Perturbations for Federated
  Sharpness-aware Minimization" (Fan et al., 2024), Algorithm 1. A step costs one gradient. The
  authors' code takes the server's last step for x - x', and divides by the sum of the tensors'
  norms.

  Attributes:
    rho: The radius, >= 0; 0 gives FedAvg.
  """

  rho: float = option(0.05, 'Radius of sharpness-aware minimization', validation.at_least_zero)
  name = 'fed_lesam'
  title = 'FedLESAM'
  summary = 'sharpness-aware steps along the change of the global model'
  paper = 'Fan et al., "Locally Estimated Global Perturbations ...", ICML 2024, Algorithm 1'
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(received=weights)

  def point(self, client: ClientRound, theta: Weights) -> Weights:
    if self.rho == 0:
      return theta
    # x' - x points upwards: x' is the older model, and x came from it by descent.
    change = base.combine(tf.subtract, client.client_state['received'], client.theta_0)
    # 0 in a round that follows no step, such as the first, whose gradient is then that at theta.
    factor = tf.math.divide_no_nan(self.rho, base.norm(change))
    return base.combine(lambda w, d: w + base.scale(factor, d), theta, change)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return collections.OrderedDict(received=client.theta_0), ()
