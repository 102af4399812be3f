"""Per-FedAvg: a model that is good after one step of fine-tuning."""

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
class PerFedAvg(base.Correction):
  """Per-FedAvg (FO): y <- y - eta_l g(y - alpha g(y; B1); B2), with two batches for each move.

  "Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
  Approach" (Fallah et al., 2020), Algorithm 1 in its first-order form. A local step here takes one
  batch: every second one moves y. A client's own model is the global one after fine-tuning.

  Attributes:
    inner_rate: alpha, >= 0. 0 gives FedAvg on every second batch.
  """

  inner_rate: float = option(
    0.05, "Learning rate of a client's own model, or of its trial steps", validation.at_least_zero
  )
  name = 'per_fed_avg'
  title = 'Per-FedAvg'
  summary = 'the model is trained to be good after one step of fine-tuning (first order)'
  paper = 'Fallah et al., "Personalized Federated Learning ...", NeurIPS 2020, Algorithm 1'
  client_weighting = 'uniform'
  assumes_sgd = 'only every second step moves the model'
  one_step = 'does not move the model'

  def local_state(self, client: ClientRound) -> Any:
    # A pair of batches begins with each round: `ahead` counts only where `is_ahead` is true.
    return collections.OrderedDict(ahead=client.theta_0, is_ahead=tf.constant(False))

  def point(self, client: ClientRound, theta: Weights) -> Weights:
    is_ahead = client.local_state['is_ahead']
    ahead = client.local_state['ahead']
    return base.combine(lambda a, y: tf.where(is_ahead, a, y), ahead, theta)

  def gradient(self, client: ClientRound, theta: Weights, g: Weights) -> Any:
    # On B1 y stays, and `ahead` is the trial step; on B2, at that point, y moves by B2's gradient.
    # First order: the derivative of the trial step, I - alpha H, is taken as I.
    is_ahead = client.local_state['is_ahead']
    ahead = base.combine(lambda y, g: y - self.inner_rate * g, theta, g)
    direction = base.combine(lambda g: tf.where(is_ahead, g, tf.zeros_like(g)), g)
    return direction, collections.OrderedDict(ahead=ahead, is_ahead=~is_ahead)
