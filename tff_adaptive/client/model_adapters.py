"""Gives all kinds of models that a client can train one interface, `LocalModel`.

The kinds are `tff_adaptive.models.Model`, TFF's `FunctionalModel`, and TFF's `VariableModel`, which
includes Keras models. A `LocalModel` computes gradients and metrics of a batch at given weights.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive.client import variable_model, weight_kinds
from tff_adaptive.client.local_model import (
  LocalModel as LocalModel,
  LocalStep as LocalStep,
  check_trainable,
  gradients_of,
)
from tff_adaptive.corrections.base import Batch, NamedWeight, Weights, merged, only
from tff_adaptive.environment import check

AnyModel: TypeAlias = (
  models.Model
  | tff.learning.models.FunctionalModel
  | Callable[[], tff.learning.models.VariableModel]
)


def wrap(model: AnyModel) -> LocalModel:
  """Returns the `LocalModel` of a model.

  Raises:
    TypeError: If it is not a model.
    ValueError: If it has no trainable weights.
  """
  if isinstance(model, models.Model):
    check_trainable(model.initial_weights[0])
    return _SeededModel(model)
  if isinstance(model, tff.learning.models.FunctionalModel):
    check_trainable(model.initial_weights[0])
    return _FunctionalModel(model)
  check.require_keras_2_model(model)
  if isinstance(model, tf.keras.layers.Layer):  # It is callable too.
    raise TypeError(
      f'model is a Keras model ({type(model).__name__}): give a function without arguments that '
      'makes it anew and returns tff.learning.models.from_keras_model(it, ...)'
    )
  if callable(model) and not isinstance(model, tff.learning.models.VariableModel):
    return variable_model.VariableModel(model)
  raise TypeError(
    'model must be a tff_adaptive.models.Model, a tff.learning.models.FunctionalModel or a '
    f'function that returns a new tff.learning.models.VariableModel, found {type(model).__name__}'
  )


class _SeededModel(LocalModel):
  """The `LocalModel` of a `tff_adaptive.models.Model`, for one client or a group."""

  takes_loss = True

  def __init__(self, model: models.Model, in_group: bool = False) -> None:
    self.model = model
    self.statistics = model.statistics
    # Batch statistics would count padding, too.
    self.is_masked = not model.statistics
    self.has_client_axis = model.client_axis
    self.has_penalty = model.penalty is not None
    self.couples_examples = model.couples_examples or bool(model.statistics)
    self.input_spec = model.input_spec
    self.metric_finalizers = models.finalize_metrics  # The model's method uses AutoGraph.
    self._is_mapped = in_group and not model.client_axis

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    trainable, _ = self.model.initial_weights
    return tff.learning.models.ModelWeights(tuple(map(tf.constant, trainable)), ())

  def start(self, group_size: int | None = None) -> Any:
    # Numerators and denominators of all metrics in one vector: each tensor that the loop of steps
    # carries costs time in every step.
    shape = [2 * len(self.model.trained_metric_names)]
    return tf.zeros(shape if group_size is None else [group_size, *shape])

  def for_groups(self) -> LocalModel:
    return _SeededModel(self.model, in_group=True)

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    x = step.batch['x']
    y = step.batch['y']
    # Without a weighting there is no padding: all rows count, and equally.
    shares, size = step.weighting or (None, tf.cast(tf.shape(y)[0], tf.float32))

    if self.statistics:

      def loss_and_moved() -> tuple[tf.Tensor, tuple[tf.Tensor, Weights]]:
        return self._loss_and_moved(step.loss, tuple(weights), x, y, None, step.seed)

      g, (means, moved) = gradients_of(loss_and_moved, weights, step.factor)
      # A layer that the model calls with training=False has a gradient by its statistics.
      g = merged(self.statistics, tuple(map(tf.zeros_like, only(self.statistics, g))), g)
      return g, moved, metrics + size * means

    def differentiate(arguments: tuple[Any, ...]) -> tuple[Weights, tf.Tensor]:
      theta, x, y, shares, seed = arguments
      loss = functools.partial(self.model.loss_and_metrics, shares=shares, training=True, seed=seed)
      if step.loss is not None:
        loss = functools.partial(self._changed_loss, step.loss, shares=shares, seed=seed)
      # With a client axis the losses are independent: the gradient of their sum is each one's own.
      return gradients_of(lambda: loss(theta, x, y), theta, step.factor)

    # The tape is inside the map, which drops the custom gradients of operations.
    arguments = (weights, x, y, shares, step.seed)
    if self._is_mapped:
      gradients, means = tf.vectorized_map(differentiate, arguments)
    else:
      gradients, means = differentiate(arguments)
    return gradients, non_trainable, metrics + size[..., tf.newaxis] * means

  def named_weights(self) -> tuple[NamedWeight, ...]:
    return weight_kinds.of_model(self.model)

  def mean_loss(self, weights: Weights, non_trainable: Weights, batch: Any) -> tf.Tensor:
    loss, _ = self.model.loss_and_metrics(weights, batch['x'], batch['y'])
    return tf.cast(loss, tf.float32)

  def features(self, weights: Weights, batch: Any) -> tf.Tensor:
    return tf.cast(self.model.features(tuple(weights), batch['x'], False, None), tf.float32)

  def _changed_loss(
    self,
    change: Callable[[Batch], tf.Tensor],
    theta: Weights,
    x: tf.Tensor,
    y: tf.Tensor,
    *,
    shares: tf.Tensor | None,
    seed: tf.Tensor | None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the loss that a part makes of a batch's, and the means of the model's own metrics."""
    loss, (means, _) = self._loss_and_moved(change, theta, x, y, shares, seed)
    return loss, means

  def _loss_and_moved(
    self,
    change: Callable[[Batch], tf.Tensor] | None,
    theta: Weights,
    x: tf.Tensor,
    y: tf.Tensor,
    shares: tf.Tensor | None,
    seed: tf.Tensor | None,
  ) -> tuple[tf.Tensor, tuple[tf.Tensor, Weights]]:
    """Returns the loss, and the means of the metrics with the moving statistics after the batch."""
    outputs, moved = self.model.forward_and_move(tuple(theta), x, seed)
    loss, means = self.model.loss_of_predictions(outputs, theta, y, shares=shares, training=True)
    if change is None:
      return loss, (means, moved)
    batch = Batch(
      theta=tuple(theta),
      x=x,
      y=y,
      outputs=outputs,
      loss=loss,
      shares=shares,
      outputs_at=lambda weights: self.model.forward(tuple(weights), x, True, seed),
      features_at=lambda weights, layer=None: self.model.features(weights, x, True, seed, layer),
      loss_of=lambda predictions: self.model.training_loss(predictions, y, shares),
      are_probabilities=self.model.outputs is not None and self.model.outputs.are_probabilities,
    )
    return change(batch), (means, moved)

  def metric_sums(self, metrics: Any, is_used: tf.Tensor) -> Any:
    # Not a product: the sums of a client that diverged may be NaN.
    return self.model.unpack_metrics(tf.where(is_used[..., tf.newaxis], metrics, 0.0))


class _FunctionalModel(LocalModel):
  """The `LocalModel` of a `tff.learning.models.FunctionalModel`."""

  def __init__(self, model: tff.learning.models.FunctionalModel) -> None:
    self._model = model
    self.input_spec = model.input_spec
    self.metric_finalizers = model.finalize_metrics

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    trainable, non_trainable = self._model.initial_weights
    return tff.learning.models.ModelWeights(
      tuple(map(tf.constant, trainable)), tuple(map(tf.constant, non_trainable))
    )

  def named_weights(self) -> tuple[NamedWeight, ...]:
    return weight_kinds.of_arrays(self._model.initial_weights[0])

  def start(self, group_size: int | None = None) -> Any:
    return self._model.initialize_metrics_state()

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    if isinstance(step.batch, dict):
      x = step.batch['x']
      y = step.batch['y']
    else:
      x, y = step.batch

    def loss_and_output() -> tuple[tf.Tensor, Any]:
      output = self._model.predict_on_batch((weights, non_trainable), x, training=True)
      loss = self._model.loss(output=output, label=y)
      return loss, (loss, output)

    gradients, (loss, output) = gradients_of(loss_and_output, weights, step.factor)
    batch_output = tff.learning.models.BatchOutput(
      loss=loss, predictions=output, num_examples=tf.shape(tf.nest.flatten(output)[0])[0]
    )
    metrics = self._model.update_metrics_state(metrics, batch_output=batch_output, labels=y)
    return gradients, non_trainable, metrics
