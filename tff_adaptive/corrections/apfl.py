"""APFL: a mixture of a client's own model and the global one."""

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
class APFL(base.Correction):
  """APFL: beside FedAvg's model y a client trains v, and uses the mixture m = a v + (1 - a) y.

  In each step v <- v - eta_l a g(m), with m before the step. "Adaptive Personalized Federated
  Learning" (Deng et al., 2020), Algorithm 1. A client's own model is the mixture with the global
  model. v begins at the initial model.

  Attributes:
    alpha_mix: a, in [0, 1]; the first one if a is learnt. 0 gives FedAvg.
    learn_alpha: Whether each step also does a <- a - eta_l <g(m), v - y>, clipped to [0, 1].
  """

  alpha_mix: float = option(
    0.5, "Weight of a client's own model in its mixture with the global one", validation.up_to_one
  )
  learn_alpha: bool = option(False, 'Learn the weight of the mixture at each client')
  name = 'apfl'
  title = 'APFL'
  summary = 'each client mixes a model of its own with the global one'
  paper = 'Deng et al., "Adaptive Personalized Federated Learning", 2020, Algorithm 1'
  assumes_sgd = "a client's own model is trained by SGD with the client rate"
  evaluates_mean = False

  def client_state(self, weights: Weights) -> Any:
    # a is a client's own, too: with `learn_alpha` clients end with different ones.
    return collections.OrderedDict(own=weights, alpha=tf.constant(self.alpha_mix, tf.float32))

  def local_state(self, client: ClientRound) -> Any:
    return client.client_state

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    personal_weights = client.local_state['own']
    alpha = client.local_state['alpha']
    # Two gradients of a batch: g(y) moves the shared model, g(m) the client's own.
    of_mixture = client.gradient_at(_mixed(alpha, personal_weights, theta))
    # The chain rule: m = a v + (1 - a) y, so the loss at m has the gradient a g(m) in v.
    rate = client.eta_l * alpha
    new_own = base.combine(lambda v, g: v - base.scale(rate, g), personal_weights, of_mixture)
    if self.learn_alpha:
      # By the same rule <g(m), v - y> is the slope in a, with v and y from before their steps.
      apart = base.combine(tf.subtract, personal_weights, theta)
      slope = tf.add_n(
        [tf.reduce_sum(tf.cast(a * b, tf.float32)) for a, b in zip(of_mixture, apart)]
      )
      # A step of SGD may leave [0, 1], where m is between the two models.
      alpha = tf.clip_by_value(alpha - client.eta_l * slope, 0.0, 1.0)
    return g, collections.OrderedDict(own=new_own, alpha=alpha)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return client.local_state, ()

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    return _mixed(client_state['alpha'], client_state['own'], theta)


def _mixed(alpha: tf.Tensor, personal_weights: Weights, theta: Weights) -> Weights:
  """Returns alpha own + (1 - alpha) theta."""
  return base.combine(
    lambda v, y: base.scale(alpha, v) + base.scale(1 - alpha, y), personal_weights, theta
  )
