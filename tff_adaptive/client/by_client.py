"""Functions of one client, applied to a client or to each client of a group."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_adaptive.corrections import base as corrections


def each(
  size: int | None,
  function: Callable[[corrections.ClientRound, Any], Any],
  client: corrections.ClientRound,
  values: Any,
  has_own_theta_0: bool = False,
) -> Any:
  """Applies a function of one client to a client, or to each client of a group.

  In a group what is a client's own in `ClientRound`, the values and the result have a leading axis
  G. `has_own_theta_0` says whether `theta_0` has it too.
  """
  if size is None:
    return function(client, values)
  of_client = {'client_state': client.client_state, 'num_examples': client.num_examples}
  of_client.update(planned_steps=client.planned_steps, seed=client.seed, index=client.index)
  if has_own_theta_0:
    of_client['theta_0'] = client.theta_0

  def one(each_client: Any) -> Any:
    i, of_client, values = each_client

    # What follows is computed once for the whole group, since it does not depend on i; each client
    # then takes its row.
    def full_gradient() -> corrections.Weights:
      return tuple(tf.gather(leaf, i) for leaf in client.full_gradient())

    def full_loss() -> tf.Tensor:
      return tf.gather(client.full_loss(), i)

    def label_counts(num_classes: int) -> tf.Tensor:
      return tf.gather(client.label_counts(num_classes), i)

    def class_features(num_classes: int) -> tuple[tf.Tensor, ...]:
      return tuple(tf.gather(leaf, i) for leaf in client.class_features(num_classes))

    mine = client._replace(
      **of_client,
      full_gradient=full_gradient,
      full_loss=full_loss,
      label_counts=label_counts,
      class_features=class_features,
    )
    # The result may be a tensor of an outer graph, which `vectorized_map` does not take.
    return tf.nest.map_structure(tf.identity, function(mine, values))

  return tf.vectorized_map(one, (tf.range(size), of_client, values))


def tiled(weight: tf.Tensor, size: int | None) -> tf.Tensor:
  """Repeats a weight once for each client of a group; returns it unchanged for one client."""
  if size is None:
    return weight
  return tf.tile(weight[tf.newaxis], [size] + [1] * weight.shape.rank)


def squared_norm(tree: Any, size: int | None) -> tf.Tensor:
  """Returns the squared 2-norm of all floating-point tensors; [size] for a group of clients."""
  tensors = map(tf.convert_to_tensor, tf.nest.flatten(tree))
  floats = [tensor for tensor in tensors if tensor.dtype.is_floating]
  if floats and size is None and all(tensor.dtype == tf.float32 for tensor in floats):
    return 2 * tf.add_n([tf.nn.l2_loss(tensor) for tensor in floats])  # One pass; a sum takes two.
  return corrections.squared_norm(tuple(floats), size)


def zeros(tree: Any) -> Any:
  """Returns zeros like the tensors of a structure."""
  return tf.nest.map_structure(tf.zeros_like, tree)


def where(condition: tf.Tensor, value: Any, otherwise: Any) -> Any:
  """Returns `value` where the condition holds, else `otherwise`; for a group client by client."""
  if not tf.nest.flatten(value):
    return value
  if condition.shape.rank == 0:
    return tf.cond(condition, lambda: value, lambda: otherwise)  # Copies nothing.

  def choose(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.reshape(condition, [-1] + [1] * (a.shape.rank - 1)), a, b)

  # A condition [G] selects by client: its axis is the first of every tensor.
  return tf.nest.map_structure(choose, value, otherwise)
