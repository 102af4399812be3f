"""AdaBest: drift estimates that fade while a client is away."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import Counts, option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, ServerRound, Weights


@dataclasses.dataclass(frozen=True)
class AdaBest(base.Correction):
  """AdaBest: drift estimates that fade while a client is away (Varno et al., 2022, Algorithm 1).

  `corrections.base` has the symbols. The local gradient is g - mu_i h_i. After round t clients set
  h_i <- h_i / (t - t_i) + g_i, where t_i is the last round before t with client i. In the paper h_i
  includes the factor mu_i; the result is the same if mu_i is constant. The server descends along
  g-bar + h with h <- beta (h + g-bar). With SGD of rate 1 at the server, this h equals the paper's
  beta (theta-bar^{t-1} - theta-bar^t) (Remark 2). With beta = mu = 0 this is FedAvg.

  Attributes:
    mu: Weight of the client's drift estimate h_i, finite and >= 0.
    beta: Factor of the server's drift estimate h <- beta (h + g-bar), in [0, 1].
    scale_mu: Whether mu_i = mu n-bar / n_i, for clients of unequal sizes n_i. n-bar is the mean
      n_i over the cohorts of all earlier rounds; in round 1, mu_i = mu. If False, mu_i = mu always.
    beta_decay: Factor in (0, 1] by which beta is multiplied whenever ||h|| has not reached a new
      minimum for `plateau_rounds` rounds; 1 keeps beta. Because h starts at zero and first grows, a
      new maximum of ||h|| restarts the search for a minimum.
    plateau_rounds: The number of rounds in `beta_decay`, >= 1.
  """

  mu: float = option(0.02, base.MU, validation.at_least_zero)
  beta: float = option(
    0.96,  # AdaBest, section 4.1: chosen at 10 % participation.
    "Factor of the server's drift estimate, in [0, 1]",
    validation.up_to_one,
    'the paper uses 0.2 to 0.98',
    # g-bar + h already is a momentum over the pseudo-gradients. With a second momentum, the server
    # optimizer's, the paper's 0.96 diverges. Adagrad has none; 0.8 was the best value for it.
    default_with={'momentum': 0.2, 'adagrad': 0.8},
  )
  scale_mu: bool = option(False, base.SCALE_MU)
  beta_decay: float = option(
    1.0,
    'Factor in (0, 1] for beta when ||h|| stops falling; 1 keeps beta',
    validation.in_half_open_unit_interval,
    'give a factor such as 0.5, or 1 to keep beta',
  )
  plateau_rounds: int = 50
  name = 'ada_best'
  title = 'AdaBest'
  summary = 'drift estimates that fade when a client is away'
  paper = 'Varno et al., "AdaBest", ECCV 2022, Algorithm 1'

  def __post_init__(self) -> None:
    super().__post_init__()
    validation.whole_number('plateau_rounds', self.plateau_rounds, 1, 'give a number of rounds')

  @classmethod
  def published_counts(cls, values: Mapping[str, Any]) -> Counts:
    return Counts()

  @property
  def needs_num_examples(self) -> bool:
    return self.scale_mu

  def client_state(self, weights: Weights) -> Any:
    # A client that was never there has last_round = 0; whatever its fade, it fades an h_i of 0.
    return collections.OrderedDict(h=base.zeros(weights), last_round=tf.zeros([]))

  def server_state(self, weights: Weights) -> Any:
    # beta is part of the state because it decays: a run that is resumed goes on with it.
    return collections.OrderedDict(
      h=base.zeros(weights),
      beta=tf.constant(self.beta, tf.float32),
      lowest_h_norm=tf.constant(float('inf')),
      highest_h_norm=tf.zeros([]),
      rounds_since=tf.zeros([], tf.int32),
      examples_seen=tf.zeros([]),
      clients_seen=tf.zeros([]),
    )

  def broadcast(self, server_state: Any) -> Any:
    """Returns n-bar, the mean number of examples of the clients of earlier rounds, or 0."""
    return tf.math.divide_no_nan(server_state['examples_seen'], server_state['clients_seen'])

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Weights:
    """Returns g - mu_i h_i."""
    if self.mu == 0:
      return g
    mu = tf.constant(self.mu, tf.float32)
    if self.scale_mu:
      # In round 1 nothing has been seen: with n-bar = n_i, mu_i is mu.
      n_bar = tf.where(client.broadcast > 0, client.broadcast, client.num_examples)
      # A client without examples takes no step; mu_i is then 0 in place of infinity.
      mu = tf.math.divide_no_nan(mu * n_bar, client.num_examples)
    return base.combine(lambda g, h: g - base.scale(mu, h), g, client.client_state['h'])

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    # 1 / (t - t_i) of Algorithm 1. The last round with the client is before t: no division by 0.
    fade = 1.0 / (client.t - client.client_state['last_round'])
    h = base.combine(lambda h, g: base.scale(fade, h) + g, client.client_state['h'], g_i)
    return collections.OrderedDict(h=h, last_round=client.t), client.num_examples

  def server_update(self, server_state: Any, server: ServerRound) -> tuple[Any, Weights]:
    beta = server_state['beta']
    # Remark 2: theta-bar^{t-1} - theta-bar^t = h^{t-1} + g-bar^t, so no theta-bar has to be kept.
    h = base.combine(lambda h, g: base.scale(beta, h + g), server_state['h'], server.g_bar)
    new = collections.OrderedDict(server_state)
    new['h'] = h
    # The uploads are combined to a mean: times |S| it is the cohort's number of examples.
    new['examples_seen'] += server.uploads * server.cohort
    new['clients_seen'] += server.cohort
    # A decay counts from the next round on: the h above has the beta of before.
    if self.beta_decay != 1:
      self._decay_beta(new, base.norm(h))
    # theta^t = theta-bar^t - h^t = theta^{t-1} - (g-bar + h), with server SGD of rate 1.
    return new, base.combine(tf.add, server.g_bar, h)

  def _decay_beta(self, state: dict[str, tf.Tensor], h_norm: tf.Tensor) -> None:
    # The paper decays beta when ||h|| plateaus, and has no rule; `beta_decay` above says this one.
    # In a round without a usable update h_norm may be NaN, but that round's state is not used.
    lower = h_norm < state['lowest_h_norm']
    higher = h_norm > state['highest_h_norm']
    since = tf.where(lower | higher, 0, state['rounds_since'] + 1)
    plateau = since >= self.plateau_rounds
    state['lowest_h_norm'] = tf.where(lower | higher, h_norm, state['lowest_h_norm'])
    state['highest_h_norm'] = tf.where(higher, h_norm, state['highest_h_norm'])
    state['rounds_since'] = tf.where(plateau, 0, since)
    state['beta'] = tf.where(plateau, state['beta'] * self.beta_decay, state['beta'])
