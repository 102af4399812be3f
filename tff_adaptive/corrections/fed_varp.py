"""FedVARP: the last updates of the clients that are away."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class FedVARP(base.Correction):
  """FedVARP: u = mean over the cohort of (g_i - y_i) + mean over all clients of y_i; y_i <- g_i.

  y_i is client i's last update. "FedVARP: Tackling the Variance Due to Partial Client Participation
  in Federated Learning" (Jhunjhunwala et al., 2022), Algorithm 1. There the server keeps all y_i;
  here each client keeps its own and sends g_i - y_i, and the server keeps their mean.

  Attributes:
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
  """

  num_clients: int
  name = 'fed_varp'
  title = 'FedVARP'
  summary = 'clients that are away count with their last update'
  paper = 'Jhunjhunwala et al., "FedVARP", UAI 2022, Algorithm 1'
  evaluates_mean = False
  sends_whole = True
  adds_up = ('update',)

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(last=base.zeros(weights))

  def server_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(mean_last=base.zeros(weights))

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    return base.combine(tf.subtract, g_i, client.client_state['last'])

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    return collections.OrderedDict(last=g_i), ()

  def after_loss(self, client_state: Any, lost_update: Weights, lost_upload: Any) -> Any:
    """Returns the y_i that the server knows of, so that it has their mean."""
    last = base.combine(tf.subtract, client_state['last'], lost_update)
    return collections.OrderedDict(last=last)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # server.g_bar is the mean of what `update` returned, g_i - y_i.
    mean_last = server_state['mean_last']
    direction = base.combine(tf.add, server.g_bar, mean_last)
    # |S|/N mean(g_i - y_i) is how much the mean of all N clients' y_i changes.
    share = server.cohort / self.num_clients
    new = base.combine(lambda y, d: y + base.scale(share, d), mean_last, server.g_bar)
    return collections.OrderedDict(mean_last=new), direction
