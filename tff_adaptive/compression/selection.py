"""Selects the largest numbers of a vector exactly, without sorting it.

`tf.math.top_k` keeps a heap or sorts, which takes seconds for millions of numbers on a CPU. Here
the k-th largest magnitude is found from histograms of its upper and its lower bits, in a few passes
over the vector. Magnitudes of float32 have the order of their bits as integers.
"""

from __future__ import annotations

from tff_adaptive._utils.lazy_tensorflow import tf

_LOW_BITS = 16  # The width of the second histogram.


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
  without_sign = tf.bitwise.bitwise_and(tf.bitcast(values, tf.int32), 2**31 - 1)
  return _largest_integers(without_sign, k)


def _largest_integers(numbers: tf.Tensor, k: int) -> tf.Tensor:
  """Returns which k of the integers >= 0, int32 [n], are largest; the first of equal ones."""
  high = tf.bitwise.right_shift(numbers, _LOW_BITS)
  high_of_kth, num_above = _bin_of_kth(high, 2 ** (31 - _LOW_BITS), k)
  of_bin = tf.boolean_mask(numbers, tf.equal(high, high_of_kth))
  low = tf.bitwise.bitwise_and(of_bin, 2**_LOW_BITS - 1)
  low_of_kth, num_above_in_bin = _bin_of_kth(low, 2**_LOW_BITS, k - num_above)
  kth = tf.bitwise.left_shift(high_of_kth, _LOW_BITS) + low_of_kth
  num_equal_wanted = k - num_above - num_above_in_bin
  num_equal = tf.reduce_sum(tf.cast(tf.equal(of_bin, kth), tf.int32))

  def first_of_equal() -> tf.Tensor:
    positions = tf.where(tf.equal(numbers, kth))[:num_equal_wanted]
    return tf.greater(numbers, kth) | _at(positions, numbers.shape.num_elements())

  return tf.cond(
    tf.equal(num_equal, num_equal_wanted),
    lambda: tf.greater_equal(numbers, kth),
    first_of_equal,
  )


def _bin_of_kth(bins: tf.Tensor, num_bins: int, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns the bin of the k-th largest number, and how many numbers are in larger bins."""
  counts = tf.math.bincount(bins, minlength=num_bins, maxlength=num_bins)
  num_from_bin_on = tf.cumsum(counts, reverse=True)
  of_kth = tf.reduce_sum(tf.cast(num_from_bin_on >= k, tf.int32)) - 1
  return of_kth, tf.gather(num_from_bin_on, of_kth) - tf.gather(counts, of_kth)


def _at(positions: tf.Tensor, size: int) -> tf.Tensor:
  """Returns bool [size], true at the positions [m, 1]."""
  trues = tf.ones(tf.shape(positions)[:1], tf.bool)
  return tf.tensor_scatter_nd_update(tf.zeros([size], tf.bool), positions, trues)
