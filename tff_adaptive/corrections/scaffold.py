"""SCAFFOLD: control variates at the clients and at the server.

"SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020),
Algorithm 1, and SCAFFOLD/m of "AdaBest" (Varno et al., 2022), Algorithm 1. Here h_i is the
paper's c_i and h its c.
"""

import collections
import dataclasses
from typing import Any

import tensorflow as tf

from tff_adaptive import registry
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights

_SCAFFOLD = registry.ALGORITHMS['scaffold']


@dataclasses.dataclass(frozen=True)
class _ControlVariates(base.Correction):
  """The local gradient and the renewal of h_i, which both forms share.

  Attributes:
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
  """

  num_clients: int
  _entry = _SCAFFOLD

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights))

  def server_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights))

  def broadcast(self, server_state: Any) -> Any:
    return server_state['h']

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns g - h_i + h."""
    return base.combine(lambda g, hi, h: g - hi + h, g, client.client_state['h'], client.broadcast)

  def _option_ii(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    """Returns h_i - h + g_i / (K_i eta_l)."""
    mean = base.mean_gradient(client, g_i, steps)
    h_i, h = client.client_state['h'], client.broadcast
    return base.combine(lambda hi, h, g: hi - h + g, h_i, h, mean)


@dataclasses.dataclass(frozen=True)
class Scaffold(_ControlVariates):
  """SCAFFOLD as published: clients send the change of their control variate.

  The server does h <- h + |S|/N mean(h_i^+ - h_i). 2n numbers are sent down, and 2n up.

  Attributes:
    scaffold_option: How a client renews h_i. With 1, h_i becomes the gradient at theta^{t-1} over
      all its examples. With 2, h_i becomes h_i - h + g_i / (K_i eta_l), with the steps that the
      client took and the rate of this round. 1 needs a loss that is a mean over a batch: a sum, as
      in stackoverflow_lr, has another scale over all examples than over a batch.
  """

  scaffold_option: int = _SCAFFOLD.default('scaffold_option')
  name = 'scaffold'

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    new = (
      client.full_gradient() if self.scaffold_option == 1 else self._option_ii(client, g_i, steps)
    )
    change = base.combine(tf.subtract, new, client.client_state['h'])
    return collections.OrderedDict(h=new), change

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, d: h + base.scale(share, d), server_state['h'], server.uploads)
    return collections.OrderedDict(h=h), server.g_bar


@dataclasses.dataclass(frozen=True)
class ScaffoldM(_ControlVariates):
  """SCAFFOLD/m: the server computes h from the models, and clients send n instead of 2n numbers.

  The server does h <- (N - |S|)/N h + 1/N sum g_i / (K_i eta_l). If all K_i are equal, this is the
  paper's (N - |S|)/N h + |S|/(K eta_l N) (theta^{t-1} - theta-bar). It needs each client's own K_i:
  with the mean of the K_i, h is no longer the mean of the h_i and the fixed point is wrong. In the
  paper 2n numbers are sent down and n up. Here a client sends the quotient besides its update, so
  that both can be summed. In exact arithmetic the result is SCAFFOLD with option 2.
  """

  name = 'scaffold_m'

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    h_i = self._option_ii(client, g_i, steps)
    return collections.OrderedDict(h=h_i), base.mean_gradient(client, g_i, steps)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # h + share (g - h) and not (1 - share) h + share g: rounding the share then moves h by a part
    # of its change only, and the fixed point not at all.
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, g: h + base.scale(share, g - h), server_state['h'], server.uploads)
    return collections.OrderedDict(h=h), server.g_bar
