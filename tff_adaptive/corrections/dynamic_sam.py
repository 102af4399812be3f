"""Sharpness-aware minimization whose perturbations agree between clients: a part of FedSMOO."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class DynamicSam(base.Correction):
  """The gradient is that at theta + e, with e = rho (g - m_i - s) / ||g - m_i - s||.

  In each step the client's dual does m_i <- m_i + e - s. The server sets s to the mean of the
  cohort's m_i, scaled to the norm rho. With FedDyn behind it this is FedSMOO, "Dynamic
  Regularized Sharpness Aware Minimization in Federated Learning" (Sun et al., 2023), Algorithm 1,
  in the form of the authors' code (FL-Simulator), which leaves the last e out of s.

  Attributes:
    rho: The radius, >= 0; 0 gives the plain gradient.
  """

  rho: float = option(0.1, 'Radius of sharpness-aware minimization', validation.at_least_zero)
  name = 'dynamic_sam'
  title = 'dynamic SAM'
  summary = 'sharpness-aware minimization whose perturbations agree between clients'
  paper = 'Sun et al., ICML 2023, Algorithm 1'
  uploads_what = 'its dual of the perturbation'
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    # Not named h: it has the size of a perturbation, and metrics of drift would take it for an h_i.
    return collections.OrderedDict(dual=base.zeros(weights))

  def server_state(self, weights: Weights) -> Any:
    return base.zeros(weights)

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def local_state(self, client: ClientRound) -> Any:
    return client.client_state['dual']

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    dual = client.local_state
    ascent = base.combine(lambda g, m, s: g - m - s, g, dual, client.broadcast)
    # Where g - m_i - s is 0, there is no direction of ascent, and e is 0.
    factor = tf.math.divide_no_nan(self.rho, base.norm(ascent))
    step = base.combine(lambda a: base.scale(factor, a), ascent)
    new_dual = base.combine(lambda m, e, s: m + e - s, dual, step, client.broadcast)
    return client.gradient_at(base.combine(tf.add, theta, step)), new_dual

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return collections.OrderedDict(dual=client.local_state), client.local_state

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # The uploads' plain mean M; s = rho M / ||M|| has the size of the clients' own perturbations.
    factor = tf.math.divide_no_nan(self.rho, base.norm(server.uploads))
    return base.combine(lambda m: base.scale(factor, m), server.uploads), server.g_bar
