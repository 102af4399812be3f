"""Seeds for TensorFlow's stateless random operations, and functions that derive new ones."""

from __future__ import annotations

from typing import Any

from tff_adaptive._utils.lazy_tensorflow import tf


def base(seed: int) -> tf.Tensor:
  """Converts a Python integer of at most 62 bits to an int32 [2] seed."""
  # 31 bits in each part, because int32 has a sign.
  return tf.constant([seed & 0x7FFFFFFF, seed >> 31 & 0x7FFFFFFF], tf.int32)


def fold(seed: tf.Tensor, *numbers: Any) -> tf.Tensor:
  """Derives an int32 [2] seed from a seed and integers."""
  for number in numbers:
    seed = tf.random.experimental.stateless_fold_in(seed, tf.cast(number, tf.int32))
  return seed


def scramble(seed: tf.Tensor) -> tf.Tensor:
  """Derives an int32 [2] seed to which a caller may add small numbers, such as a step's number.

  A seed from `fold` is [hash of the earlier numbers, last number]. If a caller added 1 to it, the
  sum could be the seed that `fold` derives for the next last number.
  """
  return tf.random.stateless_uniform([2], seed, None, None, tf.int32)
