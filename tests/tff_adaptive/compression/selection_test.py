"""The k largest numbers, exactly: those of tf.math.top_k, with the same choice among equals."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.compression import selection


def largest(values, k):
  """The mask of a sort: by falling magnitude, and by position where that is equal."""
  order = np.argsort(-np.abs(values), kind='stable')
  mask = np.zeros(len(values), bool)
  mask[order[:k]] = True
  return mask


@pytest.mark.parametrize('k', [1, 2, 50, 499, 500])
@pytest.mark.parametrize('kind', ['normal', 'few values', 'equal', 'tiny', 'zeros'])
def test_the_largest_are_those_of_a_sort(kind, k):
  rng = np.random.default_rng(k)
  values = {
    'normal': rng.normal(size=500),
    'few values': rng.integers(-3, 4, size=500),
    'equal': np.full(500, -2.5),
    'tiny': rng.normal(size=500) * 2.0**-140,  # Below float32's normal numbers.
    'zeros': np.where(rng.random(500) < 0.9, 0, rng.normal(size=500)),
  }[kind].astype(np.float32)
  indices = selection.largest(tf.constant(values), k).numpy()
  np.testing.assert_array_equal(indices, largest(values, k))
  assert indices.sum() == k


@pytest.mark.parametrize('kind', ['normal', 'few values', 'sample above', 'sample below', 'sparse'])
def test_a_long_vector_is_searched_by_a_sample_of_it(kind):
  """Whatever the sample, every eighth number here, says."""
  size = 8 * selection._SAMPLE
  k = 5000
  rng = np.random.default_rng(0)
  normal = rng.normal(size=size)
  is_sample = np.arange(size) % 8 == 0
  values = {
    'normal': normal,
    'few values': rng.integers(-300, 301, size=size),
    'sample above': np.where(is_sample & (np.arange(size) < 30_000), 10 + normal, normal),
    'sample below': np.where(is_sample, 1e-3 * normal, normal),
    'sparse': np.where(rng.random(size) < 0.01, normal, 0),  # Fewer than k are not zero.
  }[kind].astype(np.float32)
  indices = selection.largest(tf.constant(values), k).numpy()
  np.testing.assert_array_equal(indices, largest(values, k))


def test_numbers_that_differ_in_their_last_bits_are_told_apart():
  values = np.nextafter(np.float32(1), np.float32(2)) * np.ones(9, np.float32)
  values[[2, 5]] = 1
  indices = selection.largest(tf.constant(values), 7).numpy()
  np.testing.assert_array_equal(indices, values > 1)


def test_what_is_not_finite_counts_as_largest():
  values = tf.constant([1.0, -np.inf, 3.0, -np.nan, 2.0])
  indices = selection.largest(values, 2).numpy()
  np.testing.assert_array_equal(indices, [False, True, False, True, False])


@pytest.mark.parametrize(
  ('size', 'share', 'k'), [(100, 0.05, 5), (100, 0.07, 7), (3, 0.01, 1), (10, 1.0, 10), (1, 0.5, 1)]
)
def test_a_share_is_rounded_and_at_least_one_number(size, share, k):
  assert selection.num_kept(size, share) == k


@pytest.mark.parametrize('kind', ['short', 'long', 'equal', 'all'])
def test_vectors_together_keep_the_largest_of_all(kind):
  """As one vector does, also where equal numbers are in both."""
  rng = np.random.default_rng(1)
  size = 400 if kind in ('short', 'all') else 8 * selection._SAMPLE
  values = rng.normal(size=size).astype(np.float32)
  if kind == 'equal':
    values = rng.integers(-2, 3, size=size).astype(np.float32)
  k = size if kind == 'all' else size // 8
  parts = np.split(values, [size // 3, size // 3 + 1])
  decoded = selection.keep_largest([tf.constant(part) for part in parts], k)
  wanted = np.where(largest(values, k), values, 0)
  np.testing.assert_array_equal(np.concatenate(decoded), wanted)
