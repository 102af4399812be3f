"""Selects the largest numbers of a vector exactly, without sorting it.

`tf.math.top_k` keeps a heap or sorts, which is slow for millions of numbers on a CPU. Here the k-th
largest magnitude is found from histograms of its upper and its lower bits: magnitudes of float32
have the order of their bits as integers. Of a long vector a sample first gives two bounds that most
likely enclose the k-th, so that the histograms are of the numbers between them only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from tff_adaptive._utils.lazy_tensorflow import tf

_LOW_BITS = 16  # The width of the second histogram.
_SAMPLE = 2**15  # Numbers in a sample, at least.
_ABOVE_ALL = 2**31 - 1
_WORD = 8  # Flags of a byte each in an int64.
_WORDS_ADDED = 2**7  # A byte of their sum is at most this.


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
  kth = _kth_of([numbers], k)
  return tf.cond(
    tf.equal(kth.num_equal, kth.num_equal_wanted),
    lambda: tf.greater_equal(numbers, kth.number),
    lambda: _with_first_of_equal(numbers, kth),
  )


def keep_largest(vectors: Sequence[tf.Tensor], k: int) -> list[tf.Tensor]:
  """Returns the k numbers of largest magnitude of all vectors together, and zeros.

  They are those of `largest` of the vectors one after the other, which is not made here: for
  millions of numbers each copy counts.

  Args:
    vectors: float32 [n_i] each.
    k: From 1 to the sum of the n_i.
  """
  total = sum(vector.shape.num_elements() for vector in vectors)
  if k >= total:
    return list(vectors)
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
  if total >= 8 * _SAMPLE and k <= total // 4:
    return _kth_by_sample(vectors, k)
  return _kth_largest(tf.concat(vectors, 0), k)


def _with_first_of_equal(numbers: tf.Tensor, kth: _Kth) -> tf.Tensor:
  """Returns which numbers are above the k-th, or the first of those that are equal to it."""
  positions = tf.where(tf.equal(numbers, kth.number))[: kth.num_equal_wanted]
  trues = tf.ones(tf.shape(positions)[:1], tf.bool)
  return tf.tensor_scatter_nd_update(tf.greater(numbers, kth.number), positions, trues)


def _kth_by_sample(vectors: Sequence[tf.Tensor], k: int) -> _Kth:
  """Returns the same as `_kth_largest` of the vectors one after the other, which are long."""
  total = sum(vector.shape.num_elements() for vector in vectors)
  sample = tf.concat([vector[:: total // _SAMPLE] for vector in vectors], 0)
  size = sample.shape.num_elements()
  of_sample = k / total * size
  # Of the k numbers more or fewer than expected are in the sample, by four standard deviations.
  deviation = 4 * math.sqrt(of_sample)
  low = _kth_largest(sample, min(math.ceil(of_sample + deviation) + 1, size)).number
  high = tf.constant(_ABOVE_ALL)
  if of_sample - deviation >= 1:
    high = _kth_largest(sample, math.floor(of_sample - deviation)).number
  candidates, num_above = _between(vectors, low, high)
  is_among_candidates = (num_above < k) & (num_above + tf.size(candidates) >= k)
  return tf.cond(
    is_among_candidates,
    lambda: _kth_largest(candidates, k - num_above),
    lambda: _kth_largest(tf.concat(vectors, 0), k),  # The sample was unlike the vectors.
  )


def _between(
  vectors: Sequence[tf.Tensor], low: tf.Tensor, high: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the numbers from `low` to `high`, and how many are above `high`.

  `tf.boolean_mask` would look at each number by itself. Few of them are between the bounds, so here
  eight are looked at together, and most groups of eight are left out.
  """
  in_groups = []
  rests = []
  num_above = tf.constant(0)
  for vector in vectors:
    num_in_words = vector.shape.num_elements() // (_WORD * _WORDS_ADDED) * _WORD * _WORDS_ADDED
    rests.append(vector[num_in_words:])
    if num_in_words:
      in_words = vector[:num_in_words]
      above = _words(tf.greater(in_words, high))
      num_above += _num_set(above)
      is_near = tf.not_equal(_words(tf.greater_equal(in_words, low)), above)
      groups = tf.gather_nd(tf.reshape(in_words, [-1, _WORD]), tf.where(is_near))
      in_groups.append(tf.reshape(groups, [-1]))
  rest = tf.concat(rests, 0)
  num_above += tf.math.count_nonzero(tf.greater(rest, high), dtype=tf.int32)
  near = tf.concat([*in_groups, rest], 0)
  is_between = tf.greater_equal(near, low) & tf.less_equal(near, high)
  return tf.boolean_mask(near, is_between), num_above


def _words(flags: tf.Tensor) -> tf.Tensor:
  """Returns bool [8 n] as int64 [n], whose bytes are 0 or 1."""
  return tf.bitcast(tf.reshape(tf.cast(flags, tf.int8), [-1, _WORD]), tf.int64)


def _num_set(words: tf.Tensor) -> tf.Tensor:
  """Returns how many bytes of int64 [128 n] are 1; they are 0 or 1."""
  # A sum of 128 words has the sum of each of their bytes in a byte.
  sums = tf.reduce_sum(tf.reshape(words, [-1, _WORDS_ADDED]), 1)
  return tf.reduce_sum(tf.cast(tf.bitcast(sums, tf.uint8), tf.int32))


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
