"""Seeds for TensorFlow's stateless random operations, and functions that derive new ones."""

from typing import Any

import tensorflow as tf


def base(seed: int) -> tf.Tensor:
  """Converts a Python integer of 62 bits to an int32 [2] seed."""
  return tf.constant([seed & 0x7FFFFFFF, seed >> 31 & 0x7FFFFFFF], tf.int32)


def fold(seed: tf.Tensor, *numbers: Any) -> tf.Tensor:
  """Derives an int32 [2] seed from a seed and integers."""
  for number in numbers:
    seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32))
  return seed


def scramble(seed: tf.Tensor) -> tf.Tensor:
  """Derives an int32 [2] seed whose neighbours are far from those of other seeds.

  A folded seed is [hash of earlier numbers, last number]. Seeds of neighbouring numbers are
  therefore neighbours, and adding a step to one could give another.
  """
  return tf.random.stateless_uniform([2], seed, None, None, tf.int32)
