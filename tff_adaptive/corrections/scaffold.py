"""SCAFFOLD: control variates at the clients and at the server.

"SCAFFOLD: Stochastic Controlled Averaging for Federated Learning" (Karimireddy et al., 2020),
Algorithm 1, and SCAFFOLD/m of "AdaBest" (Varno et al., 2022), Algorithm 1. Here h_i is the
paper's c_i and h its c.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils.hyperparameters import Counts, option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class _ControlVariates(base.Correction):
  """The base class of SCAFFOLD and SCAFFOLD/m, with the local gradient and option II for h_i.

  Attributes:
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
  """

  num_clients: int
  adds_up = ('upload',)

  def client_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights))

  def server_state(self, weights: Weights) -> Any:
    return collections.OrderedDict(h=base.zeros(weights))

  def broadcast(self, server_state: Any) -> Any:
    return server_state['h']

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns g - h_i + h."""
    return base.combine(lambda g, hi, h: g - hi + h, g, client.client_state['h'], client.broadcast)

  def after_loss(self, client_state: Any, lost_update: Weights, lost_upload: Any) -> Any:
    """Returns the h_i that the server knows of, so that its h remains the mean of all h_i."""
    return collections.OrderedDict(h=base.combine(tf.subtract, client_state['h'], lost_upload))

  def _option_ii(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    """Returns h_i - h + g_i / (K_i eta_l)."""
    # K_i and eta_l of this client and this round. With K for all, or the rate of before a decay,
    # h_i would not be the mean gradient, and the fixed point would be another.
    mean = base.mean_gradient(client, g_i, steps)
    h_i = client.client_state['h']
    h = client.broadcast
    return base.combine(lambda hi, h, g: hi - h + g, h_i, h, mean)


@dataclasses.dataclass(frozen=True)
class Scaffold(_ControlVariates):
  """SCAFFOLD as published: clients send the change of their control variates h_i.

  The server adds |S|/N mean(h_i^+ - h_i) to its h, where h_i^+ is a client's new h_i and N is
  `num_clients`; see `corrections.base`. With n parameters a client receives and sends 2n numbers.

  Attributes:
    scaffold_option: How a client updates h_i. With 1, h_i becomes the gradient at theta^{t-1} over
      the client's examples. With 2, it becomes h_i - h + g_i / (K_i eta_l). Option 1 needs a loss
      that is a mean: a sum, as in stackoverflow_lr, is larger over all examples than over a batch.
  """

  scaffold_option: int = option(
    2,
    "The paper's option I (1) or II (2); 1 is not for stackoverflow_lr, whose loss is a sum",
    choices=(1, 2),
  )
  name = 'scaffold'
  title = 'SCAFFOLD'
  summary = 'client and server control variates, both exchanged'
  paper = 'Karimireddy et al., "SCAFFOLD", ICML 2020, Algorithm 1'
  assumes_sgd = 'its h_i is the change of the model over K_i eta_l'
  uploads_what = 'the change of h_i'

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    if self.scaffold_option == 1:
      new = client.full_gradient()
    else:
      new = self._option_ii(client, g_i, steps)
    change = base.combine(tf.subtract, new, client.client_state['h'])
    return collections.OrderedDict(h=new), change

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # c += |S|/N mean(c_i+ - c_i) keeps h the mean of all N clients' h_i: a plain mean ('mean'),
    # whatever the weights of the updates are.
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, d: h + base.scale(share, d), server_state['h'], server.uploads)
    return collections.OrderedDict(h=h), server.g_bar


@dataclasses.dataclass(frozen=True)
class ScaffoldM(_ControlVariates):
  """SCAFFOLD/m: the server computes its control variate h from the clients' updates g_i.

  N is `num_clients`; `corrections.base` has the symbols. The server sets h to (N - |S|)/N h + 1/N
  sum g_i / (K_i eta_l). If all K_i are K and clients count the same, this is (N - |S|)/N h +
  |S|/(K eta_l N) (theta^{t-1} - theta-bar), as in "AdaBest" (Varno et al., 2022). If K were the
  mean of unequal K_i, h would not be the mean of the h_i. In "AdaBest" a client receives 2n numbers
  for n parameters and sends n. Here it also sends g_i / (K_i eta_l), so that the server needs only
  sums. In exact arithmetic the result is that of `Scaffold` with `scaffold_option=2`.
  """

  name = 'scaffold_m'
  title = 'SCAFFOLD/m'
  summary = 'SCAFFOLD whose server computes its control variate from the updates'
  paper = 'Varno et al., "AdaBest", ECCV 2022, Algorithm 1'
  assumes_sgd = 'its h_i is the change of the model over K_i eta_l'
  uploads_what = 'g_i / (K_i eta_l)'

  @classmethod
  def published_counts(cls, values: Mapping[str, Any]) -> Counts:
    return Counts(down=2)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    h_i = self._option_ii(client, g_i, steps)
    return collections.OrderedDict(h=h_i), base.mean_gradient(client, g_i, steps)

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    # h + share (g - h) and not (1 - share) h + share g: rounding the share then moves h by a part
    # of its change only, and the fixed point not at all.
    share = server.cohort / self.num_clients
    h = base.combine(lambda h, g: h + base.scale(share, g - h), server_state['h'], server.uploads)
    return collections.OrderedDict(h=h), server.g_bar
