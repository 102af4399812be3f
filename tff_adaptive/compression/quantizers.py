"""Quantizers of a vector, as pure functions of the numbers and of uniform random numbers.

Vectors are float32. What a function returns is what the receiver decodes. Random numbers are
arguments, uniform in [0, 1), so that a test can enumerate them.
"""

from __future__ import annotations

import math

from tff_adaptive._utils.lazy_tensorflow import tf

_LARGEST_FLOAT16 = 65504.0


def sign(values: tf.Tensor) -> tf.Tensor:
  """Returns the mean magnitude times the signs; that of 0 is +1.

  "Error Feedback Fixes SignSGD ..." (Karimireddy et al., ICML 2019), Algorithm 1. With n numbers
  ||sign(x) - x||^2 = ||x||^2 - ||x||_1^2 / n <= (1 - 1/n) ||x||^2.
  """
  # Not tf.sign, whose 0 would be a third value: the message has one bit for a number.
  scale = tf.reduce_mean(tf.abs(values))
  return tf.where(values < 0, -scale, scale)


def qsgd(values: tf.Tensor, uniforms: tf.Tensor, num_levels: int) -> tf.Tensor:
  """Rounds magnitudes at random to multiples of ||x||_2 / s, without bias.

  "QSGD" (Alistarh et al., NeurIPS 2017), section 3.1. The mean of ||Q(x) - x||^2 is at most
  `qsgd_variance` times ||x||^2.

  Args:
    values: x, float32 [n].
    uniforms: Random numbers [n] in [0, 1).
    num_levels: s >= 1, the number of multiples besides 0.
  """
  # Of zeros the norm is 0, all levels are 0, and so is the result.
  norm = tf.norm(values)
  in_levels = tf.math.divide_no_nan(num_levels * tf.abs(values), norm)
  # floor(l + u) is l's next whole number with probability l - floor(l). Rounding may give s + 1,
  # for which there is no code.
  level = tf.minimum(tf.floor(in_levels + uniforms), num_levels)
  return tf.sign(values) * level * (norm / num_levels)


def qsgd_variance(size: int, num_levels: int) -> float:
  """Returns min(n/s^2, sqrt(n)/s), Lemma 3.1 of QSGD."""
  return min(size / num_levels**2, math.sqrt(size) / num_levels)


def ternary(values: tf.Tensor, uniforms: tf.Tensor) -> tf.Tensor:
  """Returns max |x| times the signs, at random with probability |x_j| / max |x|, else 0.

  "TernGrad" (Wen et al., NeurIPS 2017), equation (1). It has no bias. The mean of ||T(x) - x||^2 is
  max |x| ||x||_1 - ||x||^2 <= (sqrt(n) - 1) ||x||^2.
  """
  scale = tf.reduce_max(tf.abs(values))
  # Strictly below: a 0 is never sent, and the largest number always, as u < 1.
  is_sent = uniforms * scale < tf.abs(values)
  return tf.where(is_sent, tf.sign(values) * scale, tf.zeros_like(values))


def uniform(values: tf.Tensor, num_bits: int, uniforms: tf.Tensor | None = None) -> tf.Tensor:
  """Rounds numbers to 2^b values, equally spaced from the least number to the largest.

  To the nearest one, |error| <= max |x| / (2^b - 1); at random, without bias, it is at most twice
  that.

  Args:
    values: x, float32 [n].
    num_bits: b, from 1 to 16.
    uniforms: Random numbers [n] in [0, 1) for random rounding; None rounds to the nearest.
  """
  low = tf.reduce_min(values)
  last = 2**num_bits - 1
  spacing = (tf.reduce_max(values) - low) / last
  # Equal numbers have no spacing: all codes are 0, and all numbers `low`.
  in_steps = tf.math.divide_no_nan(values - low, spacing)
  added = uniforms
  if added is None:
    added = tf.constant(0.5, values.dtype)
  code = tf.clip_by_value(tf.floor(in_steps + added), 0, last)
  return low + code * spacing


def rounded(values: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
  """Rounds numbers to the nearest of a 16-bit type; in float16 to at most 65504 in magnitude."""
  # A larger number would become infinite, and the client count as diverged. bfloat16 has float32's
  # range.
  if dtype == tf.float16:
    values = tf.clip_by_value(values, -_LARGEST_FLOAT16, _LARGEST_FLOAT16)
  return tf.cast(tf.cast(values, dtype), values.dtype)
