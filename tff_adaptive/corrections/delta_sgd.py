"""Delta-SGD: each client finds its step size from its own gradients."""

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
class DeltaSGD(base.Correction):
  """Delta-SGD: a local step has the size min(gamma ||dx|| / (2 ||dg||), sqrt(1 + growth r) eta).

  "Adaptive Federated Learning with Auto-Tuned Clients" (Kim et al., 2024), Algorithm 1, where
  growth is called delta. eta is the previous step size, and r is eta divided by the step size
  before it. dx is the previous step, and dg the gradient after it minus the gradient before it. As
  in the authors' code the present batch gives both gradients, so a step computes two. Unlike the
  paper, that code has delta = 0.02, no factor 2, and adds an epsilon to the step size. A client's
  first step has the rate of the round, and r = 1.

  Attributes:
    gamma: Factor of the estimated inverse of the local smoothness, > 0.
    growth: How fast the step size may grow, >= 0.
  """

  gamma: float = option(
    2.0,
    'Factor of the estimated inverse smoothness, > 0',
    validation.above_zero,
    'the paper uses 2',
  )
  growth: float = option(
    0.1, 'How fast the step size may grow, >= 0', validation.at_least_zero, 'the paper uses 0.1'
  )
  name = 'delta_sgd'
  title = 'Delta-SGD'
  summary = 'each client finds its step size from its own gradients'
  paper = (
    'Kim et al., "Adaptive Federated Learning with Auto-Tuned Clients", ICLR 2024, Algorithm 1'
  )
  assumes_sgd = 'it finds the step size of SGD'
  makes_step = 'chooses the size of each step itself'

  def local_state(self, client: ClientRound) -> Any:
    # eta, and with it the ratio, begins anew in each round: Algorithm 1 starts from eta_0.
    return collections.OrderedDict(
      before=client.theta_0, eta=client.eta_l, ratio=tf.ones([]), is_first=tf.ones([])
    )

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    state = client.local_state
    before = tuple(state['before'])
    # On the present batch: the last step's gradient was on another one, and its difference from g
    # would be that of the batches, too, and not of the weights alone.
    g_before = client.gradient_at(before)
    dx = base.norm(base.combine(tf.subtract, theta, before))
    dg = base.norm(base.combine(tf.subtract, g, g_before))
    # The second argument of the minimum, with r = eta_k-1 / eta_k-2.
    grown = tf.sqrt(1 + self.growth * state['ratio']) * state['eta']
    # Equal gradients tell nothing about smoothness: only `growth` then limits the step.
    smooth = tf.where(dg > 0, tf.math.divide_no_nan(self.gamma * dx, 2 * dg), grown)
    # The first step has no step before it: dx and dg are 0, and eta is eta_0, the round's rate.
    eta = tf.where(state['is_first'] > 0, state['eta'], tf.minimum(smooth, grown))
    ratio = tf.where(state['is_first'] > 0, 1.0, tf.math.divide_no_nan(eta, state['eta']))
    # The client's SGD multiplies by the rate of the round; at a rate of 0 nothing moves.
    factor = tf.math.divide_no_nan(eta, client.eta_l)
    new = collections.OrderedDict(before=theta, eta=eta, ratio=ratio, is_first=tf.zeros([]))
    return base.combine(lambda g: base.scale(factor, g), g), new
