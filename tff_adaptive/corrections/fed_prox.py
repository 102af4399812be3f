"""FedProx: a proximal term keeps the client near the weights that it received."""

import dataclasses

from tff_adaptive import registry
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights

_ENTRY = registry.ALGORITHMS['fed_prox']


@dataclasses.dataclass(frozen=True)
class FedProx(base.Correction):
  """FedProx: the local gradient is g + mu (theta - theta^{t-1}).

  The second term is the gradient of the penalty mu/2 ||theta - theta^{t-1}||^2 in "Federated
  Optimization in Heterogeneous Networks" (Li et al., 2020), equation (2).

  Attributes:
    mu: Weight of the proximal term, finite and >= 0. 0 gives FedAvg.
  """

  mu: float = _ENTRY.default('mu')
  name = 'fed_prox'
  _entry = _ENTRY

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns g + mu (theta - theta^{t-1})."""
    if self.mu == 0:
      return g
    return base.combine(lambda g, x, x0: g + self.mu * (x - x0), g, theta, client.theta_0)
