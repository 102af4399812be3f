"""FedALA: clients learn how much of the global model they take."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

from tff_adaptive._utils import validation, weight_groups
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive._utils.lazy_tensorflow import tf
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import ClientRound, NamedWeight, Weights


@dataclasses.dataclass(frozen=True)
class FedALA(base.Correction):
  """FedALA: in its last layers a client begins at y' + (x - y') W, with a W of its own in [0, 1].

  y' is the client's model after its last round; in its first round y' is x. The first steps of a
  round learn W: W <- clip(W - ala_rate g (x - y'), 0, 1), with g the gradient at the model that W
  gives. The others, and all of a client's first round, are those of FedAvg. "FedALA" (Zhang et al.,
  2023), Algorithm 1. There W is learnt on passes of its own, at first until it converges.

  Attributes:
    layers: The last layers, as `weight_groups.select` takes them.
    ala_share: The share of the local steps that learn W, in [0, 1], from the second round on.
    ala_rate: The rate of W, >= 0.
  """

  layers: str = option('head', weight_groups.HELP, weight_groups.check)
  ala_share: float = option(
    0.5,
    'Share of the local steps that learn how much of the global model is taken',
    validation.up_to_one,
  )
  ala_rate: float = option(1.0, 'Rate of what these steps learn', validation.at_least_zero)
  name = 'fed_ala'
  title = 'FedALA'
  summary = 'each client learns how much of the global last layer it takes'
  paper = 'Zhang et al., "FedALA", AAAI 2023, Algorithm 1'
  assumes_sgd = 'the steps that learn W do not move the model'
  needs_batching = 'it plans how many of the local steps learn W'
  evaluates_mean = False
  mixes: tuple[bool, ...] = ()

  def resolved(self, weights: Sequence[NamedWeight]) -> base.Correction:
    mixing = self.with_groups(self.stays, self.frozen)
    # Not `stays`: these weights are sent and averaged, and the client takes what it wants of them.
    object.__setattr__(mixing, 'mixes', weight_groups.select('layers', self.layers, weights))
    return mixing

  def client_state(self, weights: Weights) -> Any:
    mixed = base.only(self.mixes, weights)
    # W = 1 takes the whole global model: a client begins as in FedAvg.
    ones = tuple(tf.ones_like(w) for w in mixed)
    return collections.OrderedDict(ended=mixed, share=ones, has_ended=tf.zeros([]))

  def begin(self, client: ClientRound, theta: Weights) -> Weights:
    return self._mixed(client.client_state, client.client_state['share'], theta)

  def _mixed(self, client_state: Any, share: Weights, theta: Weights) -> Weights:
    """Returns theta with y' + (theta - y') W in the last layers."""
    has_ended = client_state['has_ended']
    received = base.only(self.mixes, theta)
    # x + (x - y') (W - 1) is y' + (x - y') W, and is x to the bit for W = 1. `has_ended` is 0 in a
    # client's first round, when y' is x.
    mixed = base.combine(
      lambda y, w, x: x + base.scale(has_ended, (x - y) * (w - 1.0)),
      client_state['ended'],
      share,
      received,
    )
    return base.merged(self.mixes, mixed, theta)

  def local_state(self, client: ClientRound) -> Any:
    return collections.OrderedDict(share=client.client_state['share'], steps=tf.zeros([]))

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    local_state = client.local_state
    learns = self._learns(client, local_state['steps'])
    rate = self.ala_rate * learns
    # The chain rule: the loss at y' + (x - y') W has the gradient g (x - y') in W.
    share = base.combine(
      lambda w, slope, x, y: tf.clip_by_value(w - base.scale(rate, slope * (x - y)), 0.0, 1.0),
      local_state['share'],
      base.only(self.mixes, g),
      base.only(self.mixes, client.theta_0),
      client.client_state['ended'],
    )
    # Steps that learn W leave the model to `moved`. A product and no branch, for groups of clients.
    direction = base.combine(lambda leaf: base.scale(1.0 - learns, leaf), g)
    return direction, collections.OrderedDict(share=share, steps=local_state['steps'] + 1.0)

  def _learns(self, client: ClientRound, steps: tf.Tensor) -> tf.Tensor:
    """Returns 1 if the step after `steps` steps learns W, else 0."""
    is_early = tf.cast(steps < tf.round(self.ala_share * client.planned_steps), tf.float32)
    # In a client's first round W changes nothing, and all steps train, as in the authors' code.
    return is_early * client.client_state['has_ended']

  def moved(self, client: ClientRound, before: Weights, after: Weights) -> Weights:
    local_state = client.local_state
    # `gradient` has counted this step already.
    learnt = self._learns(client, local_state['steps'] - 1.0) > 0
    begun = self._mixed(client.client_state, local_state['share'], client.theta_0)
    return base.combine(lambda b, a: tf.where(learnt, b, a), begun, after)

  def client_update(self, client: ClientRound, g_i: Weights, steps: tf.Tensor) -> tuple[Any, Any]:
    theta_i = base.combine(tf.subtract, client.theta_0, g_i)
    ended = base.only(self.mixes, theta_i)
    share = client.local_state['share']
    return collections.OrderedDict(ended=ended, share=share, has_ended=tf.ones([])), ()

  def personal(self, client_state: Any, theta: Weights) -> Weights:
    return self._mixed(client_state, client_state['share'], theta)
