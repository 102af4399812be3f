"""FedNova: updates divided by the effective number of local steps."""

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
class FedNova(base.Correction):
  """FedNova: clients divide their updates by |a_i|; the server multiplies the mean by tau_eff.

  |a_i| is the effective number of a client's local steps in "Tackling the Objective Inconsistency
  Problem in Heterogeneous Federated Optimization" (Wang et al., 2020), equation (7) and section 4.
  For SGD it is their number K_i. With momentum rho a step does c <- rho c + 1, |a_i| <- |a_i| + c.
  With a proximal term a step does |a_i| <- (1 - eta_l mu) |a_i| + 1; eta_l is the client learning
  rate. tau_eff is the weighted mean of the |a_i| or, with a proximal term, of the K_i, as in the
  authors' code. Clients must use SGD, because this class applies the momentum itself.

  Attributes:
    local_momentum: rho, the momentum of the clients' SGD, in [0, 1).
    mu: Weight of the proximal term, >= 0. It cannot be combined with a momentum.
  """

  local_momentum: float = option(
    0.0, "Momentum of the clients' SGD, in [0, 1)", validation.in_unit_interval, 'give 0 for none'
  )
  mu: float = option(0.0, base.MU, validation.at_least_zero, 'give 0 for none')
  name = 'fed_nova'
  title = 'FedNova'
  summary = 'updates divided by the effective number of local steps'
  paper = (
    'Wang et al., "Tackling the Objective Inconsistency Problem ...", NeurIPS 2020, equation (7)'
  )
  assumes_sgd = 'its normalisation counts steps of SGD'
  makes_step = 'applies the momentum of the local steps itself'
  uploads_what = 'the effective number of its local steps'
  combine_uploads = 'weighted'
  sends_whole = True

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.local_momentum and self.mu:
      raise ValueError(
        f'fed_nova has local_momentum={self.local_momentum} and mu={self.mu}: the paper normalises '
        'for either of them; give one, and 0 for the other.'
      )

  def local_state(self, client: ClientRound) -> Any:
    state = collections.OrderedDict(a=tf.zeros([]))
    if self.local_momentum:
      state.update(c=tf.zeros([]), m=base.zeros(client.theta_0))
    return state

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    """Returns the direction (rho m + g, or g + mu (theta - theta^{t-1})) and the local state."""
    state = collections.OrderedDict(client.local_state)
    # |a_i| is the sum of the weights that the batches' gradients have in the client's whole move.
    # With momentum a gradient is in all later steps, too, with a power of rho.
    if self.local_momentum:
      g = base.combine(lambda m, g: self.local_momentum * m + g, state['m'], g)
      state['m'] = g
      # c = 1 + rho + ... + rho^(k-1) after k steps: the weights in this step's g.
      state['c'] = self.local_momentum * state['c'] + 1
      state['a'] += state['c']
    else:
      if self.mu:
        g = base.combine(lambda g, x, x0: g + self.mu * (x - x0), g, theta, client.theta_0)
      # The pull shrinks what earlier steps moved. With mu = 0 this counts the steps.
      state['a'] = (1 - client.eta_l * self.mu) * state['a'] + 1
    return g, state

  def update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> Weights:
    # d_i = g_i / |a_i| of equation (7); 0 for a client without steps, whose g_i is 0.
    inverse = tf.math.divide_no_nan(1.0, client.local_state['a'])
    return base.combine(lambda g: base.scale(inverse, g), g_i)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # What tau_eff is the mean of.
    effective_steps = client.local_state['a']
    if self.mu:
      effective_steps = steps
    return (), effective_steps

  def restore(self, server: ServerRound) -> Weights:
    # Equation (7): tau_eff sum p_i d_i. Before the server optimizer, so that its g-bar has the
    # usual size whatever the K_i are.
    return base.combine(lambda g: base.scale(server.uploads, g), server.g_bar)
