"""The order in which `tf.data`'s `shuffle` gives elements, from a seed and in any graph."""

import tensorflow as tf


def orders(
  num_elements: tf.Tensor, buffer_size: int, count: int | tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
  """Draws orders: each next element is one of the first `buffer_size` that are left, uniformly.

  Args:
    num_elements: int32 [], n.
    buffer_size: At least 1; 1 leaves the order as it is, n or more make all orders equally likely.
    count: How many orders.
    seed: int32 [2].

  Returns:
    int32 [count, n]: in each row element numbers in the order drawn.
  """
  rows = tf.range(count)
  places = tf.minimum(buffer_size, num_elements)
  uniform = tf.random.stateless_uniform([num_elements, count], seed)

  def draw(t: tf.Tensor, buffer: tf.Tensor, drawn: tf.TensorArray) -> tuple:
    filled = tf.minimum(places, num_elements - t)
    # A float32 below 1 times `filled` may round up to it.
    place = tf.minimum(tf.cast(uniform[t] * tf.cast(filled, tf.float32), tf.int32), filled - 1)
    at = tf.stack([rows, place], 1)
    drawn = drawn.write(t, tf.gather_nd(buffer, at))
    # The next element takes the place; after the last one, the last in the buffer does.
    following = tf.where(t + places < num_elements, t + places, buffer[:, filled - 1])
    return t + 1, tf.tensor_scatter_nd_update(buffer, at, following), drawn

  _, _, drawn = tf.while_loop(
    lambda t, *_: t < num_elements,
    draw,
    (
      tf.constant(0),
      tf.tile(tf.range(places)[tf.newaxis], [count, 1]),
      tf.TensorArray(
        tf.int32, num_elements, element_shape=[count if isinstance(count, int) else None]
      ),
    ),
  )
  return tf.transpose(drawn.stack())
