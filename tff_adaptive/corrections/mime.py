"""Mime and MimeLite: clients use the server's optimizer statistics, frozen during a round."""

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
class MimeLite(base.Correction):
  """MimeLite: the local gradient g becomes U(g, s), and the server sets s to V(c, s).

  "Breaking the Centralized Barrier for Cross-Device Federated Learning" (Karimireddy et al., 2021),
  Algorithm 1 and table 2. s has the statistics (m, v or both) of a base optimizer, which do not
  change during a round. Each client computes its gradient over all examples at theta^{t-1}, the
  global model before the round. c is the mean of these gradients, weighted like the updates.

  - sgdm: U = beta1 m + (1 - beta1) g; V: m <- beta1 m + (1 - beta1) c.
  - adam: U = (beta1 m + (1 - beta1) g) / (eps + sqrt(v));
    V: m as in sgdm, and v <- beta2 v + (1 - beta2) c^2.
  - adagrad: U = g / (eps + sqrt(v)); V: v <- v + c^2.

  Attributes:
    base_optimizer: The base optimizer: 'sgdm', 'adam' or 'adagrad'.
    base_beta1: beta1, decay of m, in [0, 1).
    base_beta2: beta2, decay of v, in [0, 1).
    base_eps: eps, the number that is added to the root of v, > 0.
  """

  base_optimizer: str = option(
    'sgdm',
    'The optimizer whose statistics are frozen during a round',
    hint='the paper has these three',
    choices=('sgdm', 'adam', 'adagrad'),
  )
  base_beta1: float = option(
    0.9, 'Decay of m, for sgdm and adam, in [0, 1)', validation.in_unit_interval, 'give 0.9, say'
  )
  base_beta2: float = option(
    0.99, 'Decay of v, for adam, in [0, 1)', validation.in_unit_interval, 'give 0.99, say'
  )
  base_eps: float = option(
    1e-3,
    'Added to the root of v, for adam and adagrad, > 0',
    validation.above_zero,
    'give 1e-3, say',
  )
  name = 'mime_lite'
  title = 'MimeLite'
  summary = "clients use the server's optimizer statistics in their steps"
  paper = 'Karimireddy et al., "Breaking the Centralized Barrier ...", NeurIPS 2021, Algorithm 1'
  assumes_sgd = 'it applies the base optimizer itself'
  makes_step = 'applies the base optimizer itself'
  uploads_what = 'the gradient over all its examples'
  combine_uploads = 'weighted'

  def server_state(self, weights: Weights) -> Any:
    state = collections.OrderedDict()
    if self.base_optimizer != 'adagrad':
      state['m'] = base.zeros(weights)
    if self.base_optimizer != 'sgdm':
      state['v'] = base.zeros(weights)
    return state

  def broadcast(self, server_state: Any) -> Any:
    return server_state

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    # U(g, s) with the s of the round's beginning: if each step moved s, clients would drift apart
    # with their own statistics, which is what Mime prevents.
    statistics = client.broadcast
    if 'm' in statistics:
      g = self._moved(statistics['m'], g)
    if 'v' in statistics:
      g = base.combine(lambda g, v: g / (self.base_eps + tf.sqrt(v)), g, statistics['v'])
    return g

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # At theta^{t-1} and not along the client's path: s then follows gradients of the global model.
    return (), client.full_gradient()

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    # V sees c, and the model moves along g-bar: the clients' steps have U in them already.
    return self._updated(server_state, server.uploads), server.g_bar

  def _updated(self, statistics: Any, c: Weights) -> Any:
    """Returns the new statistics V(c, s)."""
    new: dict[str, Any] = collections.OrderedDict()
    if 'm' in statistics:
      new['m'] = self._moved(statistics['m'], c)
    if 'v' in statistics:
      old = added = 1.0  # Adagrad's v is a sum.
      if 'm' in statistics:  # Adam's v is a moving average.
        old = self.base_beta2
        added = 1 - self.base_beta2
      new['v'] = base.combine(lambda v, c: old * v + added * c * c, statistics['v'], c)
    return new

  def _moved(self, m: Weights, g: Weights) -> Weights:
    return base.combine(lambda m, g: self.base_beta1 * m + (1 - self.base_beta1) * g, m, g)


@dataclasses.dataclass(frozen=True)
class Mime(MimeLite):
  """Mime: MimeLite with g - g_0 + c in place of g, g_0 being the batch's gradient at theta^{t-1}.

  c is the mean of MimeLite's full gradients. Clients need it in their steps, so they send these
  gradients before they train, in a second exchange. See Algorithm 1 of MimeLite's paper.
  """

  name = 'mime'
  title = 'Mime'
  summary = 'MimeLite with variance-reduced local gradients, two exchanges a round'
  refuses_loss_gradient = 'its difference of two gradients would not be that of the loss'

  def exchange(self, client: ClientRound) -> Any:
    return client.full_gradient()

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    # As in SVRG, g - g_0 + c has the mean of the cohort's gradient, and little of the batch's noise
    # as long as theta is near theta^{t-1}. g_0 is on the batch of g, so its noise cancels.
    g_0 = client.gradient_at(client.theta_0)
    g = base.combine(lambda g, g_0, c: g - g_0 + c, g, g_0, client.exchanged)
    return super().gradient(client, theta, g)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # Not MimeLite's upload: the full gradient was sent before training, in `exchange`.
    return (), ()

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, ...]:
    return self._updated(server_state, server.exchanged), server.g_bar
