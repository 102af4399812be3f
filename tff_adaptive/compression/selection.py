"""Selects the largest numbers of a vector exactly, without sorting it.

`tf.math.top_k` keeps a heap or sorts, which is slow for millions of numbers on a CPU. Here the k-th
largest magnitude is found from histograms of its upper and its lower bits: magnitudes of float32
have the order of their bits as integers. Of a long vector a sample first says which numbers can be
among the largest, so that the histograms are of these only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf

IMPLEMENTED = 'tff_adaptive.keep_largest'  # With ':' and k, what a function in a graph does.
LONG = 2**20  # Numbers from which on there is such a function.
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
  numbers = _magnitudes(values)
  # Mostly nothing ties with the k-th number, and a comparison is all.
  kth = _kth_of([numbers], k)
  return tf.cond(
    tf.equal(kth.num_equal, kth.num_equal_wanted),
    lambda: tf.greater_equal(numbers, kth.number),
    lambda: _with_first_of_equal(numbers, kth),
  )


def keep_largest(vectors: Sequence[tf.Tensor], k: int) -> list[tf.Tensor]:
  """Returns the k numbers of largest magnitude of all vectors together, and zeros.

  They are those of `largest` of the vectors one after the other, which is not made here: for
  millions of numbers each copy counts. In a graph, many numbers are selected by a function that
  says what it does, in whose place `kernels.top_k` may put a compiled operation.

  Args:
    vectors: float32 [n_i] each.
    k: From 1 to the sum of the n_i.
  """
  total = sum(vector.shape.num_elements() for vector in vectors)
  if k >= total:
    return list(vectors)
  if total < LONG or tf.executing_eagerly():
    return _keep_largest(vectors, k)
  function = tf.function(
    lambda *values: _keep_largest(values, k),
    autograph=False,
    experimental_implements=f'{IMPLEMENTED}:{k}',
  )
  return list(function(*vectors))


def _keep_largest(vectors: Sequence[tf.Tensor], k: int) -> list[tf.Tensor]:
  """Returns the same as `keep_largest`, for a k below the sum of the n_i."""
  numbers = [_magnitudes(vector) for vector in vectors]
  kth = _kth_of(numbers, k)

  def from_kth_on() -> list[tf.Tensor]:
    return [tf.where(tf.greater_equal(n, kth.number), v, 0.0) for n, v in zip(numbers, vectors)]

  def first_of_equal() -> list[tf.Tensor]:
    is_kept = _with_first_of_equal(tf.concat(numbers, 0), kth)
    masks = tf.split(is_kept, [vector.shape.num_elements() for vector in vectors])
    return [tf.where(mask, vector, 0.0) for mask, vector in zip(masks, vectors)]

  is_all = tf.equal(kth.num_equal, kth.num_equal_wanted)
  return list(tf.cond(is_all, from_kth_on, first_of_equal))


def _magnitudes(values: tf.Tensor) -> tf.Tensor:
  """Returns the bits of float32 numbers without the sign, int32 [n]."""
  return tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), 2**31 - 1)


class _Kth(NamedTuple):
  """The k-th largest number, how many are equal to it, and how many of these are among the k."""

  number: tf.Tensor
  num_equal: tf.Tensor
  num_equal_wanted: tf.Tensor


def _kth_of(vectors: Sequence[tf.Tensor], k: int) -> _Kth:
  """Returns the k-th largest of integers >= 0, int32 [n_i] each."""
  total = sum(vector.shape.num_elements() for vector in vectors)
  # A short vector is quickly counted, and of a large share a sample would leave most numbers in.
  if total >= 8 * _SAMPLE and k <= total // 4:
    return _kth_by_sample(vectors, k)
  return _kth_largest(tf.concat(vectors, 0), k)


def _with_first_of_equal(numbers: tf.Tensor, kth: _Kth) -> tf.Tensor:
  """Returns which numbers are above the k-th, or the first of those that are equal to it."""
  # `tf.where` returns positions in rising order.
  positions = tf.where(tf.equal(numbers, kth.number))[: kth.num_equal_wanted]
  trues = tf.ones(tf.shape(positions)[:1], tf.bool)
  return tf.tensor_scatter_nd_update(tf.greater(numbers, kth.number), positions, trues)


def _kth_by_sample(vectors: Sequence[tf.Tensor], k: int) -> _Kth:
  """Returns the same as `_kth_largest` of the vectors one after the other, which are long."""
  total = sum(vector.shape.num_elements() for vector in vectors)
  sample = tf.concat([vector[:: total // _SAMPLE] for vector in vectors], 0)
  share = k / total
  of_sample = share * sample.shape.num_elements()
  # Four standard deviations more than the k numbers are expected to have in the sample.
  rank = min(math.ceil(of_sample + 4 * math.sqrt(of_sample)) + 1, sample.shape.num_elements())
  least = _kth_largest(sample, rank).number
  large = [tf.boolean_mask(vector, tf.greater_equal(vector, least)) for vector in vectors]
  candidates = tf.concat(large, 0)
  return tf.cond(
    tf.size(candidates) >= k,
    lambda: _kth_largest(candidates, k),
    lambda: _kth_largest(tf.concat(vectors, 0), k),  # The sample was unlike the vectors.
  )


def _kth_largest(numbers: tf.Tensor, k: int) -> _Kth:
  """Returns the k-th largest of integers >= 0, int32 [n]."""
  # Two histograms of 2^15 and 2^16 bins in place of one of 2^31: first by the upper bits, then of
  # the numbers in the k-th one's bin by the lower bits.
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
  # These numbers fall from bin to bin, so the k-th largest is in the last bin with at least k.
  num_from_bin_on = tf.cumsum(counts, reverse=True)
  of_kth = tf.math.count_nonzero(num_from_bin_on >= k, dtype=tf.int32) - 1
  return of_kth, tf.gather(num_from_bin_on, of_kth) - tf.gather(counts, of_kth)
