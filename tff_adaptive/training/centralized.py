"""Centralised training: all examples in one place, the baseline of federated optimizers.

A process like the federated ones, so that `tff_adaptive.training.train` runs it: its round is an
epoch, its cohort the one client who has all examples.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive.client import batch_sources, batching as batching_lib, model_adapters

CLIENT_ID = 'all'


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


class EpochOutput(NamedTuple):
  """Result of an epoch.

  Attributes:
    state: The new `CentralizedState`.
    metrics: Training metrics: `{'train': {name: float32 scalar}}`.
  """

  state: CentralizedState
  metrics: Any


class OneClient:
  """All examples as one client, for `tff_adaptive.training.train`."""

  client_ids = (CLIENT_ID,)

  def __init__(self, data: Mapping[str, Any]):
    """Takes `OrderedDict(x=array[n, ...], y=array[n, ...])`; it is not copied."""
    self._data = data

  def num_examples(self, client_id: str) -> int:
    """How many they are."""
    del client_id
    return len(self._data['y'])

  def load(self, client_id: str) -> Any:
    """The examples."""
    del client_id
    return self._data


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
    def run_epoch(
      weights: Any, optimizer_state: Any, epoch: tf.Tensor, element: Mapping[str, tf.Tensor]
    ) -> Any:
      source = batch_sources.WholeArrays(local, batching, seed, element, epoch)

      def step(state: Any, batch: Any) -> Any:
        theta, slots, metrics = state
        g, metrics = local.gradients(theta, (), batch.batch, batch.weighting, batch.seed, metrics)
        slots, theta = optimizer.next(slots, theta, batch_sources.dense(g, theta))
        return tuple(theta), slots, metrics

      start = (weights, optimizer_state, local.start())
      (weights, optimizer_state, sums), _, _ = source.run(step, start)
      return weights, optimizer_state, models.finalize_metrics(model.unpack_metrics(sums))

    self._run_epoch = run_epoch

  def initialize(self) -> CentralizedState:
    """The state before the first epoch."""
    weights = tuple(tf.constant(w) for w in self._model.initial_weights[0])
    specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in weights)
    slots = tf.nest.map_structure(tf.convert_to_tensor, self._optimizer.initialize(specs))
    return CentralizedState(
      tff.learning.models.ModelWeights(weights, ()), slots, tf.constant(0, tf.int32)
    )

  def next(self, state: CentralizedState, cohort: Any) -> EpochOutput:
    """Trains for an epoch.

    Args:
      state: From `initialize` or the epoch before.
      cohort: One client: `[client.client_arrays(...)]`.

    Returns:
      The new state and the training metrics.
    """
    epoch = tf.cast(state.epoch, tf.int32) + 1
    weights, slots, metrics = self._run_epoch(
      tuple(tf.convert_to_tensor(w) for w in state.global_model_weights.trainable),
      tf.nest.map_structure(tf.convert_to_tensor, state.optimizer),
      epoch,
      tf.nest.map_structure(tf.convert_to_tensor, cohort[0][0]),
    )
    new_weights = tff.learning.models.ModelWeights(weights, ())
    return EpochOutput(
      CentralizedState(new_weights, slots, epoch), collections.OrderedDict(train=metrics)
    )
