"""FedProx: a proximal term keeps the client near the weights that it received."""

import dataclasses

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class FedProx(base.Correction):
  """FedProx: the local gradient g at theta becomes g + mu (theta - theta^{t-1}).

  theta^{t-1} is the model that the client received. "Federated Optimization in Heterogeneous
  Networks" (Li et al., 2020), equation (2), adds mu/2 ||theta - theta^{t-1}||^2 to the local loss.

  Attributes:
    mu: Weight of the proximal term, finite and >= 0. 0 gives FedAvg.
  """

  mu: float = option(0.02, base.MU, validation.at_least_zero)
  name = 'fed_prox'
  title = 'FedProx'
  summary = 'FedAvg with a proximal term in the client loss'
  paper = 'Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, equation (2)'

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns g + mu (theta - theta^{t-1})."""
    if self.mu == 0:
      return g
    # mu and not mu/2: the gradient of a square has the factor 2.
    return base.combine(lambda g, x, x0: g + self.mu * (x - x0), g, theta, client.theta_0)
