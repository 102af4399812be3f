"""Quantizers: no bias by enumeration, and errors within the stated bounds."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.compression import quantizers

# Uniform random numbers in the middle of 64 equal intervals: the mean over them is exact if the
# probabilities are multiples of 1/64.
GRID = (np.arange(64, dtype=np.float32) + 0.5) / 64


def mean_of(quantize, values):
  """The mean over all random numbers of the grid; all coordinates have the same ones."""
  values = np.asarray(values, np.float32)
  drawn = [quantize(values, np.full(values.shape, u, np.float32)).numpy() for u in GRID]
  return np.mean(drawn, 0, np.float64), np.stack(drawn)


def vectors():
  """Random vectors of unlike shapes: dense, with a long tail, almost all zero, with one number."""
  rng = np.random.default_rng(0)
  dense = rng.normal(size=200)
  sparse = np.where(rng.random(200) < 0.03, rng.normal(size=200), 0)
  one = np.array([0.3])
  return [v.astype(np.float32) for v in (dense, dense**3, dense**7, sparse, one, dense + 5)]


def test_qsgd_has_no_bias_and_its_levels():
  values = [3.0, -4.0, 0, 0, 12.0]  # The norm is 13; with s = 13 levels each is 1.
  mean, _ = mean_of(lambda v, u: quantizers.qsgd(v, u, 13), values)
  np.testing.assert_allclose(mean, values, atol=1e-5)
  values = np.array([8.0, 8, 8, -8]) / 16  # The norm is 1: half of s = 1, 1.5 of s = 3.
  for num_levels in (1, 3):
    mean, drawn = mean_of(lambda v, u, s=num_levels: quantizers.qsgd(v, u, s), values)
    np.testing.assert_allclose(mean, values, atol=1e-6)
    in_levels = drawn * num_levels
    np.testing.assert_allclose(in_levels, np.round(in_levels), atol=1e-5)
    assert len(np.unique(drawn[:, 0])) == 2


def test_ternary_has_no_bias_and_three_values():
  values = [0.5, -0.25, 1.0, 0, -0.75]
  mean, drawn = mean_of(quantizers.ternary, values)
  np.testing.assert_allclose(mean, values, atol=1e-6)
  np.testing.assert_array_equal(np.unique(drawn), [-1, 0, 1])


@pytest.mark.parametrize('num_bits', [1, 2, 3, 8])
def test_random_rounding_has_no_bias_and_its_number_of_values(num_bits):
  last = 2**num_bits - 1
  # In steps of the grid from the least number, -1, with spacing 1: probabilities in 64ths.
  values = np.array([0, last, 0.25, last - 0.5, 1 / 64]) - 1
  mean, drawn = mean_of(lambda v, u: quantizers.uniform(v, num_bits, u), values)
  np.testing.assert_allclose(mean, values, atol=1e-5 * last)
  assert set(np.unique(np.round(drawn, 3))) <= set(np.arange(last + 1) - 1.0)


@pytest.mark.exhaustive
def test_variances_are_within_their_bounds():
  rng = np.random.default_rng(1)
  for values in vectors():
    square = float((values.astype(np.float64) ** 2).sum())
    n = len(values)
    uniforms = rng.random((200, n)).astype(np.float32)

    def mean_error(quantize, uniforms=uniforms, values=values):
      errors = [((quantize(values, u).numpy() - values) ** 2).sum() for u in uniforms]
      return np.mean(errors, dtype=np.float64)

    for num_levels in (1, 4, 64):
      error = mean_error(lambda v, u, s=num_levels: quantizers.qsgd(v, u, s))
      assert error <= 1.1 * quantizers.qsgd_variance(n, num_levels) * square + 1e-9
    exact = np.abs(values).max() * np.abs(values).sum() - square
    assert mean_error(quantizers.ternary) == pytest.approx(exact, rel=0.2, abs=1e-6)
    assert exact <= (np.sqrt(n) - 1) * square + 1e-6


def test_deterministic_errors_are_within_their_bounds():
  for values in vectors():
    wide = values.astype(np.float64)
    n = len(values)
    square = (wide**2).sum()
    error = quantizers.sign(tf.constant(values)).numpy() - wide
    exact = square - np.abs(wide).sum() ** 2 / n
    assert (error**2).sum() == pytest.approx(exact, rel=1e-4, abs=1e-6)
    assert (error**2).sum() <= (1 - 1 / n) * square + 1e-6
    for num_bits in (1, 2, 5, 16):
      error = quantizers.uniform(tf.constant(values), num_bits).numpy() - wide
      bound = np.abs(wide).max() * (1 / (2**num_bits - 1) + 1e-6)
      assert np.abs(error).max() <= bound
    for dtype, relative, absolute in ((tf.float16, 2**-11, 2**-25), (tf.bfloat16, 2**-8, 0)):
      error = quantizers.rounded(tf.constant(values), dtype).numpy() - wide
      assert (np.abs(error) <= np.maximum(relative * np.abs(wide), absolute)).all()


def test_zeros_stay_zero_and_float16_does_not_overflow():
  zeros = tf.zeros([5])
  half = tf.fill([5], 0.5)
  for result in (
    quantizers.sign(zeros),
    quantizers.qsgd(zeros, half, 4),
    quantizers.ternary(zeros, half),
    quantizers.uniform(zeros, 2),
    quantizers.uniform(zeros, 2, half),
  ):
    np.testing.assert_array_equal(result, np.zeros(5))
  result = quantizers.rounded(tf.constant([1e6, -1e6]), tf.float16)
  np.testing.assert_array_equal(result, [65504, -65504])
