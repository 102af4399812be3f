"""q-FedAvg: clients with a larger loss count more."""

from __future__ import annotations

import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights

_EPSILON = 1e-10  # Added to losses in the authors' code.


@dataclasses.dataclass(frozen=True)
class QFedAvg(base.Correction):
  """q-FedAvg: the update is F_i^q g_i / eta_l, and the step sum(updates) / sum(h_i).

  F_i is the client's mean loss at the model that it received, and h_i = q F_i^(q - 1) ||g_i /
  eta_l||^2 + F_i^q / eta_l. "Fair Resource Allocation in Federated Learning" (Li et al., 2020),
  Algorithm 2.

  Attributes:
    q: How much more a client with a larger loss counts, >= 0. 0 gives FedAvg.
  """

  q: float = option(
    1.0, 'Exponent of the losses by which clients are weighted', validation.at_least_zero
  )
  name = 'q_fed_avg'
  title = 'q-FedAvg'
  summary = 'clients count by a power of their losses'
  paper = 'Li et al., "Fair Resource Allocation in Federated Learning", ICLR 2020, Algorithm 2'
  client_weighting = 'uniform'
  combine_uploads = 'weighted'
  sends_whole = True
  assumes_sgd = 'its updates are changes of the model over eta_l'
  uploads_what = 'h_i'

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    # F^q Delta w of Algorithm 2, with L = 1 / eta_l.
    factor = _loss(client) ** self.q / client.eta_l
    return base.combine(lambda g: base.scale(factor, g), g_i)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # h_i bounds the curvature of F^(q+1) / (q + 1): a step of 1 / h_i is safe for any q, so that
    # the rate need not be tuned anew.
    loss = _loss(client)
    square = base.squared_norm(g_i) / client.eta_l**2
    return (), self.q * loss ** (self.q - 1) * square + loss**self.q / client.eta_l

  def restore(self, server: ServerRound) -> Weights:
    # A mean over a mean with the same weights is the quotient of the sums.
    inverse = tf.math.divide_no_nan(1.0, server.uploads)
    return base.combine(lambda g: base.scale(inverse, g), server.g_bar)


def _loss(client: ClientRound) -> tf.Tensor:
  # Above 0 also for a client that fits its data: with q < 1 the power q - 1 would be infinite.
  return client.full_loss() + _EPSILON
