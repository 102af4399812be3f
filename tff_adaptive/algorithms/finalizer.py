"""The last part of a round: the server optimizer applies the aggregated pseudo-gradient."""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.algorithms import components

_ROUND, _OPTIMIZER = 'round_num', 'optimizer'  # The state of TFF's scheduled optimizers.
_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


def build(
  server_optimizer: tff.learning.optimizers.Optimizer,
  server_schedule: components.Rate | None,
  model_weights_type: Any,
) -> tff.learning.templates.FinalizerProcess:
  """Applies the aggregated pseudo-gradient with the server optimizer, its rate scheduled.

  An aggregate that is not finite changes neither the weights nor the optimizer's state, as in
  TFF; the schedule of a rate goes on all the same, for it counts rounds.

  Args:
    server_optimizer: The optimizer, which may have a schedule already.
    server_schedule: What replaces its rate: a function of the round; None for nothing.
    model_weights_type: Type of `tff.learning.models.ModelWeights`.

  Returns:
    The finalizer; its state is the optimizer's.
  """
  if server_schedule is not None:
    server_optimizer = tff.learning.optimizers.schedule_learning_rate(
      server_optimizer, components.as_rate_fn(server_schedule)
    )
  build_tffs = tff.learning.templates.build_apply_optimizer_finalizer
  if not _is_scheduled(server_optimizer):
    return build_tffs(server_optimizer, model_weights_type)
  # The optimizer itself refuses what TFF would refuse for it, schedule and all.
  return build_tffs(_CountsEveryRound(server_optimizer), model_weights_type, _measure_only)


class _CountsEveryRound(tff.learning.optimizers.Optimizer):
  """A scheduled optimizer of which an update that is not finite moves the schedule only."""

  def __init__(self, scheduled: tff.learning.optimizers.Optimizer):
    self._scheduled = scheduled

  def initialize(self, specs: Any) -> Any:
    return self._scheduled.initialize(specs)

  def next(self, state: Any, weights: Any, gradients: Any) -> tuple[Any, Any]:
    new_state, new_weights = self._scheduled.next(state, weights, gradients)
    kept = collections.OrderedDict(state[_OPTIMIZER])
    kept[_RATE] = new_state[_OPTIMIZER][_RATE]
    refused = collections.OrderedDict([(_ROUND, new_state[_ROUND]), (_OPTIMIZER, kept)])
    is_refused, _ = tff.learning.templates.reject_non_finite_update(None, gradients)
    return tf.cond(is_refused, lambda: (refused, weights), lambda: (new_state, new_weights))

  def get_hparams(self, state: Any) -> Any:
    return self._scheduled.get_hparams(state)

  def set_hparams(self, state: Any, hparams: Any) -> Any:
    return self._scheduled.set_hparams(state, hparams)


def _is_scheduled(optimizer: tff.learning.optimizers.Optimizer) -> bool:
  """Whether an optimizer is one of `tff.learning.optimizers.schedule_learning_rate`."""
  with tf.Graph().as_default():
    state = optimizer.initialize(tf.TensorSpec([1], tf.float32))
  return isinstance(state, Mapping) and set(state) == {_ROUND, _OPTIMIZER}


def _measure_only(unused_state: Any, update: Any) -> tuple[bool, Any]:
  _, measurements = tff.learning.templates.reject_non_finite_update(None, update)
  return False, measurements
