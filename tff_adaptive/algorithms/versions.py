"""Older models that clients train from while the server moves on; see `training.Buffered`.

A server step receives a stack of the models (and messages) with which its clients began, and
returns in its place the model and message before the step. A client's data have an entry `version`,
the row of its model in the stack. The client's update is multiplied by a factor that depends on its
staleness.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import local_training
from tff_adaptive.corrections import base as corrections


def build_stack(message_type: tff.Type, weights_type: tff.Type, num: int) -> tff.Computation:
  """Builds `(<message, weights> -> stack)` of `num` rows, 0 or 1; its type allows any number."""

  @tff.tensorflow.computation(message_type, weights_type)
  def stack(message: Any, weights: Any) -> Any:
    def rows(leaf: tf.Tensor) -> tf.Tensor:
      return tf.compat.v1.placeholder_with_default(leaf[tf.newaxis][:num], [None, *leaf.shape])

    return tf.nest.map_structure(rows, message), tf.nest.map_structure(rows, weights)

  return stack


def select(element: Any, message: Any, weights: Any, older: Any) -> tuple[Any, Any]:
  """Returns the message and weights in row `element['version']` of `older`; if -1, those given."""
  slot = element['version']

  def chosen(stack: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
    return tf.cond(slot >= 0, lambda: stack[slot], lambda: tf.identity(leaf))

  flat = map(chosen, tf.nest.flatten(older), tf.nest.flatten((message, weights)))
  return tf.nest.pack_sequence_as((message, weights), list(flat))


def discounted(
  trained: local_training.Trained, element: Any, moved: corrections.Weights | None
) -> local_training.Trained:
  """Multiplies a client's update by its factor for staleness.

  Args:
    trained: The result of the client's training.
    element: The client's data. The factor is the entry 'discount', or 'mixed' if `moved` is given.
    moved: The present model minus the one that the client began with. It is added to the update,
      which then is the present model minus the client's model. None adds nothing.
  """
  update, factor = trained.update, element['discount' if moved is None else 'mixed']
  if moved is not None:
    update = corrections.combine(
      lambda u, d: u + corrections.scale(trained.is_used, d), update, moved
    )
  update = corrections.combine(lambda u: corrections.scale(factor, u), update)
  return trained._replace(update=update, squared_norm=corrections.squared_norm(update))
