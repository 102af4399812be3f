"""How a client's examples become the batches of its local steps."""

import dataclasses
from typing import Any, Optional

import tensorflow as tf

from tff_adaptive import checks


@dataclasses.dataclass(frozen=True)
class Batching:
  """Local batching of whole-array clients: all randomness from a seed, none from tf.data.

  Attributes:
    batch_size: B, examples a step; None for all of the client's examples (one step an epoch).
    epochs: E, passes over the client's examples in a round.
    shuffle: Whether each epoch goes through the examples in a new order.
    fill_last: Whether the last batch of an epoch is filled up by drawing again from the client's
      own examples, as AdaBest's experiments do; otherwise it is as small as it is.
  """

  batch_size: Optional[int]
  epochs: int = 1
  shuffle: bool = True
  fill_last: bool = False

  def __post_init__(self):
    if self.batch_size is not None:
      checks.whole_number('batch_size', self.batch_size, 1, 'give None for all examples at once')
    checks.whole_number('epochs', self.epochs, 1, 'give the passes over the data in a round')

  def steps(self, num_examples: tf.Tensor) -> tf.Tensor:
    """K_i, the local steps of a client with `num_examples` (int32, any shape)."""
    if self.batch_size is None:
      return tf.where(num_examples > 0, self.epochs, 0)
    return self.epochs * (-(-num_examples // self.batch_size))


def fold(seed: tf.Tensor, *numbers: Any) -> tf.Tensor:
  """A new int32 [2] seed from a seed and integers, statelessly."""
  for number in numbers:
    seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32))
  return seed


@dataclasses.dataclass(frozen=True)
class Plan:
  """The examples of each local step of one client.

  Attributes:
    indices: int32 [K, B]: examples of each step; padding repeats example 0.
    weights: float32 [K, B]: 1 for an example that counts, 0 for padding. None with whole batches
      (then every example counts).
    sizes: int32 [K]: examples of each step that count.
  """

  indices: tf.Tensor
  weights: Optional[tf.Tensor]
  sizes: tf.Tensor


def plan(batching: Batching, num_examples: tf.Tensor, seed: tf.Tensor) -> Plan:
  """Draws a client's batches for one round.

  Args:
    batching: How to batch.
    num_examples: n_i, int32 scalar.
    seed: int32 [2].

  Returns:
    The plan; K = E ceil(n / B).
  """
  epochs, n = batching.epochs, num_examples
  if batching.shuffle and batching.batch_size is not None:
    keys = tf.random.stateless_uniform([epochs, n], fold(seed, 1))
    order = tf.argsort(keys, axis=-1)
  else:
    order = tf.tile(tf.range(n)[tf.newaxis], [epochs, 1])
  if batching.batch_size is None:
    return Plan(order, None, tf.fill([epochs], n))
  size = batching.batch_size
  steps = -(-n // size)
  missing = steps * size - n
  if batching.fill_last:
    extra = tf.random.stateless_uniform(
      [epochs, missing], fold(seed, 2), maxval=tf.maximum(n, 1), dtype=tf.int32
    )
    indices = tf.reshape(tf.concat([order, extra], 1), [epochs * steps, size])
    return Plan(indices, None, tf.fill([epochs * steps], size))
  indices = tf.reshape(tf.pad(order, [[0, 0], [0, missing]]), [epochs * steps, size])
  weights = tf.pad(tf.ones([epochs, n]), [[0, 0], [0, missing]])
  weights = tf.reshape(weights, [epochs * steps, size])
  return Plan(indices, weights, tf.cast(tf.reduce_sum(weights, -1), tf.int32))
