"""Centralised training: all examples in one place, the baseline of federated optimizers.

A process like the federated ones, so that `tff_adaptive.training.train` runs it: its round is an
epoch, its cohort the one client who has all examples.
"""

import collections
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive.client import batch_sources, batching as batching_lib, model_adapters


class CentralizedState(NamedTuple):
  """State between epochs.

  Attributes:
    global_model_weights: `tff.learning.models.ModelWeights`.
    optimizer: The optimizer's state, of all steps so far.
    epoch: Epochs done, int32.
  """

  global_model_weights: tff.learning.models.ModelWeights
  optimizer: Any
  epoch: tf.Tensor


class CentralizedTraining:
  """Minibatch training with one optimizer, whose state lasts from epoch to epoch."""

  def __init__(
    self,
    model: models.Model,
    optimizer: tff.learning.optimizers.Optimizer,
    *,
    batch_size: int,
    seed: int = 0,
    unit_starts: Callable[..., Any] | None = None,
  ):
    """Creates the process.

    Args:
      model: The model.
      optimizer: Any TFF optimizer; those of `tff_adaptive.optimizers` are the papers'.
      batch_size: Examples a step; the last step of an epoch takes what is left.
      seed: Seed of shuffling and dropout.
      unit_starts: See `batching.Batching`.
    """
    self._model, self._optimizer = model, optimizer
    local = model_adapters.wrap(model)
    batching = batching_lib.Batching(batch_size, unit_starts=unit_starts)

    @tf.function(autograph=False, reduce_retracing=True)
    def run_epoch(weights: Any, slots: Any, epoch: tf.Tensor, element: Any) -> Any:
      source = batch_sources.WholeArrays(local, batching, seed, element, epoch)

      def step(state: Any, batch: Any) -> Any:
        theta, slots, metrics = state
        g, metrics = local.gradients(theta, (), batch, metrics)
        slots, theta = optimizer.next(slots, theta, batch_sources.dense(g, theta))
        return tuple(theta), slots, metrics

      (weights, slots, sums), _, _ = source.run(step, (weights, slots, local.start()))
      return weights, slots, models.finalize_metrics(model.unpack_metrics(sums))

    self._run_epoch = run_epoch

  def initialize(self) -> CentralizedState:
    """The state before the first epoch."""
    weights = tuple(tf.constant(w) for w in self._model.initial_weights[0])
    slots = self._optimizer.initialize(tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights))
    return CentralizedState(
      tff.learning.models.ModelWeights(weights, ()),
      tf.nest.map_structure(tf.convert_to_tensor, slots),
      tf.constant(0, tf.int32),
    )

  def next(
    self, state: CentralizedState, cohort: Any
  ) -> tff.learning.templates.LearningProcessOutput:
    """Trains for an epoch.

    Args:
      state: From `initialize` or the epoch before.
      cohort: One client: `[client.client_arrays(...)]`.

    Returns:
      The new `state` and the training `metrics`: `{'train': {name: float32 scalar}}`.
    """
    epoch = tf.cast(state.epoch, tf.int32) + 1
    arguments = tuple(state.global_model_weights.trainable), state.optimizer, epoch, cohort[0][0]
    weights, slots, metrics = self._run_epoch(
      *tf.nest.map_structure(tf.convert_to_tensor, arguments)
    )
    return tff.learning.templates.LearningProcessOutput(
      CentralizedState(tff.learning.models.ModelWeights(weights, ()), slots, epoch),
      collections.OrderedDict(train=metrics),
    )
