"""Gradients times a factor, such as the learning rate, without a pass over the weights.

The gradient of a loss times a factor is the gradient of the factor times the loss, so a local step
of plain SGD, theta - rate * g, need not multiply gradients of the size of the weights. This is so
where gradients are linear in what comes from above, as TensorFlow's are; one that a model brings
along (`tf.custom_gradient`) may be none, one that clips for instance. It is left as it is.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

Gradient: TypeAlias = Any  # A tensor, `tf.IndexedSlices`, or None.


def gradients(
  function: Callable[[], tuple[tf.Tensor, Any]],
  weights: tuple[Any, ...],
  factor: tf.Tensor | None = None,
) -> tuple[tuple[Gradient, ...], Any]:
  """The gradients of a loss times a factor, and what else the function returns.

  Args:
    function: Returns the loss, a scalar, or [G] of which each is differentiated by itself, and
      anything else.
    weights: Tensors, or variables.
    factor: A scalar; None: 1.

  Returns:
    `(gradients, anything else)`; a gradient is None where the loss does not depend on the weight.
  """
  before = _num_operations()
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, others = function()
  if factor is None:
    return tape.gradient(loss, weights), others
  if loss.dtype in (tf.float32, tf.float64) and _are_linear(before):
    above = tf.ones_like(loss) * tf.cast(factor, loss.dtype)
    return tape.gradient(loss, weights, output_gradients=above), others
  return tuple(_times(factor, g) for g in tape.gradient(loss, weights)), others


def _num_operations() -> int:
  return 0 if tf.executing_eagerly() else len(_operations())


def _operations() -> list[tf.Operation]:
  return tf.compat.v1.get_default_graph().get_operations()


def _are_linear(before: int) -> bool:
  """Whether all operations since then have TensorFlow's gradients, and none float16's range."""
  return not tf.executing_eagerly() and all(map(_is_linear, _operations()[before:]))


def _is_linear(operation: tf.Operation) -> bool:
  attributes = operation.node_def.attr
  # Those of float16 are scaled so that they do not vanish; a function may hold anything.
  return (
    '_gradient_op_type' not in attributes
    and not any(a.HasField('func') or a.list.func for a in attributes.values())
    and not any(t.dtype == tf.float16 for t in operation.outputs)
  )


def _times(factor: tf.Tensor, gradient: Gradient) -> Gradient:
  if gradient is None:
    return None
  factor = tf.cast(factor, gradient.dtype)
  if isinstance(gradient, tf.IndexedSlices):
    return tf.IndexedSlices(factor * gradient.values, gradient.indices, gradient.dense_shape)
  return factor * gradient
