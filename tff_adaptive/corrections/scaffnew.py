"""Scaffnew (ProxSkip): control variates and a random number of local steps."""

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, Weights


@dataclasses.dataclass(frozen=True)
class Scaffnew(base.Correction):
  """Scaffnew: the local gradient is g - h_i; then h_i <- h_i + (p / eta_l) (theta^t - theta_i).

  "ProxSkip: Yes! Local Gradient Steps Provably Lead to Communication Acceleration" (Mishchenko et
  al., 2022), Algorithm 2. A client updates h_i when it takes part again, with the model that it
  then receives. This is the published algorithm if all clients take part in every round. With
  smaller cohorts it diverges, because that model includes the changes of several rounds. In the
  paper one coin decides for all clients after each step; here `Batching` with `random_local_steps`
  draws the number of steps, and p is 1 / `local_steps`. Without `local_steps` p is 1 / K_i.
  """

  name = 'scaffnew'

  def client_state(self, weights: Weights) -> Any:
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
    return self._h(client)

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    return base.combine(tf.subtract, g, client.local_state), client.local_state

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    mean_steps = steps if client.mean_steps is None else client.mean_steps
    scale = tf.math.divide_no_nan(1.0, mean_steps * client.eta_l)
    ended = base.combine(tf.subtract, client.theta_0, g_i)
    return collections.OrderedDict(h=self._h(client), ended=ended, scale=scale), ()

  def inference_weights(
    self, server_state: Any, theta: Weights, theta_bar: Weights
  ) -> Weights | None:
    return None
