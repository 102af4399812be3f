"""Older models in a process: the one with which a client begins, and what its update counts.

A server step receives a stack of the models (and messages) with which its clients began, and
returns in its place the model and message before the step. A client's data have the row of its
model in the stack. The client's update is multiplied by a factor that depends on its staleness.
"""

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.asynchrony import settings
from tff_adaptive.client import local_training
from tff_adaptive.corrections import base as corrections


class Beginning(NamedTuple):
  """The values with which a client begins its training.

  Attributes:
    message: The message that it received.
    weights: The model that it received.
    factor: The factor of its update, float32.
    moved: The present model minus the received one, by which the update is longer; None if updates
      are not relative to the present model (see `Buffered.mixing`).
  """

  message: local_training.Message
  weights: tff.learning.models.ModelWeights
  factor: tf.Tensor
  moved: corrections.Weights | None


def data_entries(asynchrony: settings.Buffered) -> dict[str, tf.TensorSpec]:
  """Returns the entries that a client's data have in addition.

  The first is the row of the client's model among the older models, or -1 for the present model;
  the second is the factor of its update.
  """
  return {
    settings.OLDER_MODEL: tf.TensorSpec([], tf.int32),
    asynchrony.factor_entry: tf.TensorSpec([], tf.float32),
  }


def build_stack(message_type: tff.Type, weights_type: tff.Type, num_rows: int) -> tff.Computation:
  """Builds `(<message, weights> -> stack)` of 0 rows or 1; its type allows any number."""

  @tff.tensorflow.computation(message_type, weights_type)
  def stack(message: Any, weights: Any) -> Any:
    def rows(leaf: tf.Tensor) -> tf.Tensor:
      row = leaf[tf.newaxis][:num_rows]
      # The number of rows differs from step to step; the type must not.
      return tf.compat.v1.placeholder_with_default(row, [None, *leaf.shape])

    return tf.nest.map_structure(rows, message), tf.nest.map_structure(rows, weights)

  return stack


def begin(
  asynchrony: settings.Buffered, message: Any, models: Any, data: tf.data.Dataset
) -> Beginning:
  """Returns the values with which a client begins.

  Args:
    asynchrony: The settings for which the process is built.
    message: The present message.
    models: The present weights, and the stack of older messages and weights.
    data: The client's data, a dataset of one element.
  """
  present, older = models
  element = data.get_single_element()
  row = element[settings.OLDER_MODEL]
  message, weights = _select(row, (message, present), older)
  moved = None
  if asynchrony.mixing:
    moved = corrections.combine(tf.subtract, tuple(present.trainable), tuple(weights.trainable))
  factor = element[asynchrony.factor_entry]
  return Beginning(local_training.Message(*message), weights, factor, moved)


def discounted(trained: local_training.Trained, beginning: Beginning) -> local_training.Trained:
  """Returns a client's result with the update times its factor for staleness.

  If the beginning has a `moved`, the update first becomes the present model minus the client's.
  """
  update = trained.update
  if beginning.moved is not None:
    # An update that is left out stays zero: `is_used` is 0 then.
    update = corrections.combine(
      lambda u, d: u + corrections.scale(trained.is_used, d), update, beginning.moved
    )
  update = corrections.combine(lambda u: corrections.scale(beginning.factor, u), update)
  return trained._replace(update=update, squared_norm=corrections.squared_norm(update))


def _select(row: tf.Tensor, present: Any, older: Any) -> Any:
  """Returns the row of the stack `older`, or `present` if the row is -1."""

  def choose(stack: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
    # No tf.where: the stack may have no row at all.
    return tf.cond(row >= 0, lambda: stack[row], lambda: tf.identity(leaf))

  leaves = map(choose, tf.nest.flatten(older), tf.nest.flatten(present))
  return tf.nest.pack_sequence_as(present, list(leaves))
