"""Scaffnew (ProxSkip): control variates and a random number of local steps."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class Scaffnew(base.Correction):
  """Scaffnew: the local gradient is g - h_i, then h_i <- h_i + (p / eta_l) (theta^t - theta_i).

  "ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication Acceleration" (Mishchenko et
  al., 2022), Algorithm 2; `corrections.base` has the symbols. A client updates h_i when it takes
  part again, with the model that it then receives. If all clients take part in every round, this is
  the published algorithm. With smaller cohorts it diverges, because that model includes the changes
  of several rounds. In the paper clients communicate after a step with the probability p; here
  `Batching.random_local_steps` draws K_i. p is 1 / `local_steps`, or 1 / K_i if that is None.
  """

  name = 'scaffnew'
  title = 'Scaffnew'
  summary = 'control variates and a random number of local steps, all clients in every round'
  paper = 'Mishchenko et al., "ProxSkip", ICML 2022, Algorithm 2'
  adds_up = ('update',)
  assumes_sgd = 'its h_i moves by the change of the model over eta_l'

  def client_state(self, weights: Weights) -> Any:
    # What the next update of h_i needs: theta_i and p / eta_l of the client's last round. With
    # scale 0 the first h_i is 0, whatever model the client receives.
    return collections.OrderedDict(h=base.zeros(weights), ended=weights, scale=tf.zeros([]))

  def _h(self, client: ClientRound) -> Weights:
    """Returns h_i after the update for the client's last round."""
    state = client.client_state
    return base.combine(
      lambda h, x, end: h + base.scale(state['scale'], x - end),
      state['h'],
      client.theta_0,
      state['ended'],
    )

  def local_state(self, client: ClientRound) -> Any:
    # Computed once, before the loop of steps.
    return self._h(client)

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    return base.combine(tf.subtract, g, client.local_state), client.local_state

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    mean_steps: Any = client.mean_steps  # 1 / p.
    if mean_steps is None:
      mean_steps = steps
    scale = tf.math.divide_no_nan(1.0, mean_steps * client.eta_l)
    ended = base.combine(tf.subtract, client.theta_0, g_i)
    return collections.OrderedDict(h=self._h(client), ended=ended, scale=scale), ()

  def after_loss(self, client_state: Any, lost_update: Weights, lost_upload: Any) -> Any:
    """Returns the state with the theta_i that the server knows of, so that the mean h_i is 0."""
    ended = base.combine(tf.add, client_state['ended'], lost_update)
    return collections.OrderedDict(client_state, ended=ended)

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    # The server has no h: with SGD of rate 1 theta is theta-bar.
    return None
