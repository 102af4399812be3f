"""Older models that clients train from while the server moves on; see `training.Buffered`.

The server keeps them stacked, each with the message of its moment. A client's element names the one
that it began with; its update is discounted by its staleness.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import local_training
from tff_adaptive.corrections import base as corrections


def build_empty(num: int, message_type: tff.Type, weights_type: tff.Type) -> tff.Computation:
  """`(<M, W> -> <M, W>)` with an axis of `num` before all others: zeros."""

  @tff.tensorflow.computation(message_type, weights_type)
  def empty(message: Any, weights: Any) -> Any:
    def zeros(leaf: tf.Tensor) -> tf.Tensor:
      return tf.zeros([num, *leaf.shape], leaf.dtype)

    return tf.nest.map_structure(zeros, message), tf.nest.map_structure(zeros, weights)

  return empty


def build_store(
  older_type: tff.Type, message_type: tff.Type, weights_type: tff.Type, place_type: tff.Type
) -> tff.Computation:
  """`(<older, M, W, place> -> older)`: keeps the present model where the clients' elements say.

  The place is `place_of`, summed over the clients.
  """

  @tff.tensorflow.computation(older_type, message_type, weights_type, place_type)
  def store(older: Any, message: Any, weights: Any, place: Any) -> Any:
    total, clients = place
    slot = tf.where(clients > 0, total // tf.maximum(clients, 1), -1)

    def put(stack: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
      return tf.tensor_scatter_nd_update(stack, [[slot]], leaf[tf.newaxis])

    messages, models = older
    # Leaf by leaf: kept containers may be others than those that are received.
    new = [
      tf.cond(slot >= 0, lambda s=s, v=v: put(s, v), lambda s=s: s)
      for s, v in zip(
        tf.nest.flatten((messages, models)), tf.nest.flatten((message, weights)), strict=True
      )
    ]
    return tf.nest.pack_sequence_as((messages, models), new)

  return store


def place_of(element: Any) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns where the present model is kept, as a client says; all clients say the same."""
  return tf.identity(element['store']), tf.constant(1)


def select(element: Any, message: Any, weights: Any, older: Any) -> tuple[Any, Any]:
  """The message and the weights that a client began with."""
  slot = element['version']

  def chosen(stack: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
    return tf.cond(slot >= 0, lambda: tf.gather(stack, slot), lambda: tf.identity(leaf))

  flat = map(chosen, tf.nest.flatten(older), tf.nest.flatten((message, weights)))
  return tf.nest.pack_sequence_as((message, weights), list(flat))


def discounted(
  trained: local_training.Trained, element: Any, moved: corrections.Weights | None
) -> local_training.Trained:
  """A client's update times its factor; first measured from the present model if it has `moved`.

  Args:
    trained: What it gave.
    element: Its data.
    moved: The present model minus the one that the client began with; None for an update that is
      measured from the latter.
  """
  update, factor = trained.update, element['discount' if moved is None else 'mixed']
  if moved is not None:
    update = corrections.combine(
      lambda u, d: u + corrections.scale(trained.is_used, d), update, moved
    )
  update = corrections.combine(lambda u: corrections.scale(factor, u), update)
  return trained._replace(update=update, squared_norm=corrections.squared_norm(update))
