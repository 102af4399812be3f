"""Selects the largest numbers of a vector exactly, without sorting it.

`tf.math.top_k` keeps a heap or sorts, which is slow for millions of numbers on a CPU. Here the k-th
largest magnitude is found from histograms of its upper and its lower bits: magnitudes of float32
have the order of their bits as integers. Of a long vector a sample first says which numbers can be
among the largest, so that the histograms are of these only.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf

_LOW_BITS = 16  # The width of the second histogram.
_SAMPLE = 2**15  # Numbers in a sample, at least.


def num_kept(size: int, share: float) -> int:
  """Returns how many of `size` numbers a share in (0, 1] stands for: rounded, at least 1."""
  return min(size, max(1, round(share * size)))


def largest(values: tf.Tensor, k: int) -> tf.Tensor:
  """Returns which k numbers of a vector are largest in magnitude.

  Of equal magnitudes the first count as larger, as in `tf.math.top_k`. NaN counts as largest.

  Args:
    values: float32 [n].
    k: From 1 to n.

  Returns:
    bool [n], with k of them true.
  """
  size = values.shape.num_elements()
  if k >= size:
    return tf.ones([size], tf.bool)
  numbers = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), 2**31 - 1)  # Without the sign.
  if size >= 8 * _SAMPLE and k <= size // 4:
    kth = _kth_by_sample(numbers, k)
  else:
    kth = _kth_largest(numbers, k)

  def first_of_equal() -> tf.Tensor:
    positions = tf.where(tf.equal(numbers, kth.number))[: kth.num_equal_wanted]
    trues = tf.ones(tf.shape(positions)[:1], tf.bool)
    return tf.tensor_scatter_nd_update(tf.greater(numbers, kth.number), positions, trues)

  return tf.cond(
    tf.equal(kth.num_equal, kth.num_equal_wanted),
    lambda: tf.greater_equal(numbers, kth.number),
    first_of_equal,
  )


class _Kth(NamedTuple):
  """The k-th largest number, how many are equal to it, and how many of these are among the k."""

  number: tf.Tensor
  num_equal: tf.Tensor
  num_equal_wanted: tf.Tensor


def _kth_by_sample(numbers: tf.Tensor, k: int) -> _Kth:
  """Returns the same as `_kth_largest`, of a long vector."""
  sample = numbers[:: numbers.shape.num_elements() // _SAMPLE]
  share = k / numbers.shape.num_elements()
  of_sample = share * sample.shape.num_elements()
  # Four standard deviations more than the k numbers are expected to have in the sample.
  rank = min(math.ceil(of_sample + 4 * math.sqrt(of_sample)) + 1, sample.shape.num_elements())
  least = _kth_largest(sample, rank).number
  is_large = tf.greater_equal(numbers, least)
  return tf.cond(
    tf.math.count_nonzero(is_large, dtype=tf.int32) >= k,
    lambda: _kth_largest(tf.boolean_mask(numbers, is_large), k),
    lambda: _kth_largest(numbers, k),  # The sample was unlike the vector.
  )


def _kth_largest(numbers: tf.Tensor, k: int) -> _Kth:
  """Returns the k-th largest of integers >= 0, int32 [n]."""
  high = tf.bitwise.right_shift(numbers, _LOW_BITS)
  high_of_kth, num_above = _bin_of_kth(high, 2 ** (31 - _LOW_BITS), k)
  of_bin = tf.boolean_mask(numbers, tf.equal(high, high_of_kth))
  low = tf.bitwise.bitwise_and(of_bin, 2**_LOW_BITS - 1)
  low_of_kth, num_above_in_bin = _bin_of_kth(low, 2**_LOW_BITS, k - num_above)
  number = tf.bitwise.left_shift(high_of_kth, _LOW_BITS) + low_of_kth
  num_equal = tf.math.count_nonzero(tf.equal(of_bin, number), dtype=tf.int32)
  return _Kth(number, num_equal, k - num_above - num_above_in_bin)


def _bin_of_kth(bins: tf.Tensor, num_bins: int, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the bin of the k-th largest number, and how many numbers are in larger bins."""
  # `tf.math.bincount` would first look for the largest number.
  counts = tf.raw_ops.DenseBincount(
    input=bins, size=num_bins, weights=tf.constant([], tf.int32), binary_output=False
  )
  num_from_bin_on = tf.cumsum(counts, reverse=True)
  of_kth = tf.math.count_nonzero(num_from_bin_on >= k, dtype=tf.int32) - 1
  return of_kth, tf.gather(num_from_bin_on, of_kth) - tf.gather(counts, of_kth)
