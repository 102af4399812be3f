"""Seeds of TensorFlow's stateless random operations, and seeds made from them."""

from typing import Any

import tensorflow as tf


def base(seed: int) -> tf.Tensor:
  """A Python integer of 62 bits as an int32 [2] seed."""
  return tf.constant([seed & 0x7FFFFFFF, seed >> 31 & 0x7FFFFFFF], tf.int32)


def fold(seed: tf.Tensor, *numbers: Any) -> tf.Tensor:
  """A new int32 [2] seed from a seed and integers."""
  for number in numbers:
    seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32))
  return seed


def scramble(seed: tf.Tensor) -> tf.Tensor:
  """An int32 [2] seed whose neighbours no other seed comes near.

  A folded seed is [hash of what came before, last number], so those of neighbouring numbers are
  neighbours: adding a step to one would give that of another.
  """
  return tf.random.stateless_uniform([2], seed, None, None, tf.int32)
