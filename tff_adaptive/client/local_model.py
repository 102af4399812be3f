"""The interface of models for a client's local steps."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.corrections.base import Batch, NamedWeight, Weights, scale


class LocalStep(NamedTuple):
  """The inputs of a local step.

  Attributes:
    batch: The examples, such as `OrderedDict(x, y)`.
    weighting: None, or `(shares [B], size)` for a model that `is_masked`: each example's share in
      the mean (0 for padding) and the number of examples that count. [G, B] and [G] for G clients.
    seed: int32 [2] for dropout, or [G, 2]; None for no dropout.
    active: None, or float32 [G]: 1, or 0 for a client that has taken all its steps.
    factor: None, or a factor of the gradients, float32 [].
    loss: None, or a function of a `corrections.base.Batch`, whose result is differentiated in place
      of the model's loss. Only `models.Model` has it, for one client.
  """

  batch: Any
  weighting: tuple[tf.Tensor, tf.Tensor] | None = None
  seed: tf.Tensor | None = None
  active: tf.Tensor | None = None
  factor: tf.Tensor | None = None
  loss: Callable[[Batch], tf.Tensor] | None = None


class LocalModel:
  """The interface of models for the loop of local steps.

  Attributes:
    input_spec: The specs of a batch's tensors.
    is_masked: Whether `gradients` uses `LocalStep.weighting`.
    statistics: For each trainable weight whether it is a moving statistic, for which `gradients`
      returns the next value in place of the model's other weights; () for none.
    has_client_axis: Whether the model's operations also take a leading axis of clients.
    has_penalty: Whether the loss has a term that depends on the weights only, not on examples.
    couples_examples: Whether an example's loss depends on the other examples of its batch.
    has_variables: Whether the model creates TensorFlow variables while it is traced.
    takes_loss: Whether `gradients` uses `LocalStep.loss`.
    metric_finalizers: The argument of `tff.learning.metrics.sum_then_finalize`.
  """

  input_spec: Any
  is_masked = False
  statistics: tuple[bool, ...] = ()
  has_client_axis = False
  has_penalty = False
  couples_examples = False
  has_variables = False
  takes_loss = False
  metric_finalizers: Any

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the initial weights; called inside a `tff.tensorflow.computation`."""
    raise NotImplementedError

  def named_weights(self) -> tuple[NamedWeight, ...]:
    """Returns the trainable weights by name and kind, for `Correction.resolved`."""
    raise NotImplementedError

  def mean_loss(self, weights: Weights, non_trainable: Weights, batch: Any) -> tf.Tensor:
    """Returns the mean loss of a batch, without dropout. Only models that take losses have it."""
    raise NotImplementedError

  def features(self, weights: Weights, batch: Any) -> tf.Tensor:
    """Returns the inputs of the last layer, float32 [B, size], without dropout."""
    raise ValueError(
      f'{type(self).__name__.strip("_")} has no features, which this algorithm needs: give a'
      ' tff_adaptive.models.Model'
    )

  def start(self, group_size: int | None = None) -> Any:
    """Returns the initial metrics of a client or of G clients; a training graph calls it once."""
    raise NotImplementedError

  def for_groups(self) -> 'LocalModel':
    """Returns the model for G clients at once; weights, batch and metrics get a leading axis G."""
    raise NotImplementedError(f'{type(self).__name__} trains one client at a time')

  def without_metrics(self) -> 'LocalModel':
    """Returns the model without metrics, for gradients at weights other than the local ones."""
    return self

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    """Computes the gradients of a batch's mean loss.

    Args:
      weights: Trainable weights, a tuple of tensors.
      non_trainable: The other weights, a tuple of tensors: the server's, or those that the previous
        step returned.
      step: The batch.
      metrics: The result of `start`, or of the previous step.

    Returns:
      `(gradients, non_trainable, metrics)`: the (dense) gradients; the other weights as the model
      leaves them after the batch, such as a step counter or moving statistics; and the metrics with
      the batch added.
    """
    raise NotImplementedError

  def metric_sums(self, metrics: Any, is_used: tf.Tensor) -> Any:
    """Returns the metrics to sum over clients; zeros if `is_used` (bool) is false."""
    zero = self.start()
    return tf.cond(is_used, lambda: metrics, lambda: zero)


def check_trainable(weights: Any) -> None:
  if not tf.nest.flatten(weights):
    raise ValueError(
      'the model has no trainable weights, so that clients have nothing to train: leave '
      'trainable=False out of the layers that they should train'
    )


def gradients_of(
  function: Callable[[], tuple[tf.Tensor, Any]], weights: tuple[Any, ...], factor: Any
) -> tuple[Weights, Any]:
  """Returns factor * the gradients of `function`'s first result, the loss, and its second result.

  In graphs it multiplies the loss where it can: large models save a pass over their weights.
  """
  before = len(tf.compat.v1.get_default_graph().get_operations())
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, others = function()
  operations = tf.compat.v1.get_default_graph().get_operations()[before:]
  scales_loss = factor is not None and bool(operations) and all(map(_is_linear, operations))
  factor_of_loss = None
  if scales_loss:
    factor_of_loss = scale(factor, tf.ones_like(loss))
    factor = None
  gradients = tape.gradient(loss, weights, factor_of_loss, 'zero')
  # Embeddings have gradients as `IndexedSlices`, which corrections and sums do not take.
  gradients = tuple(tf.convert_to_tensor(g) for g in gradients)
  if factor is not None:
    gradients = tuple(scale(factor, g) for g in gradients)
  return gradients, others


def _is_linear(operation: tf.Operation) -> bool:
  """Returns whether an operation's gradient is linear in its result's, and exact in float32."""
  attributes = operation.node_def.attr  # `tf.custom_gradient` sets '_gradient_op_type'.
  has_function = any(a.HasField('func') or a.list.func for a in attributes.values())
  is_short = any(t.dtype in (tf.float16, tf.bfloat16) for t in operation.outputs)
  return not ('_gradient_op_type' in attributes or has_function or is_short)
