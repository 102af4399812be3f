"""The comparison that other tests use: what roundings may change, and what they may not."""

import numpy as np
import pytest

from tests.helpers import closeness

RATE = 0.1
STEPS = 2


def control_variate(theta, theta_i):
  """SCAFFOLD's c_i = (theta - theta_i) / (K lr), in float32."""
  return (theta - theta_i) / np.float32(STEPS * RATE)


@pytest.fixture
def theta():
  return np.linspace(-1.5, 1.5, 20, dtype=np.float32)


def test_the_last_bit_of_a_step_may_change_the_second_digit_of_a_small_control_variate(theta):
  g = np.linspace(0.0, 3e-4, 20, dtype=np.float32)
  theta_i = theta - np.float32(STEPS * RATE) * g
  wanted = control_variate(theta, theta_i)
  moved = control_variate(theta, np.nextafter(theta_i, np.float32(9)))  # Another last bit.
  small = np.argmin(np.where(wanted == 0, np.inf, np.abs(wanted)))
  assert abs(moved[small] - wanted[small]) > 0.03 * abs(wanted[small])
  atol = closeness.ATOL * np.linalg.norm(theta) / RATE
  closeness.assert_close(moved, wanted, atol=atol)
  # Far from what a mistake changes: one step more or less in K.
  with pytest.raises(AssertionError, match='is allowed'):
    closeness.assert_close(moved * STEPS / (STEPS + 1), wanted, atol=atol)


def test_any_order_of_a_sum_is_close_and_a_changed_thousandth_is_not():
  rng = np.random.default_rng(1)
  terms = rng.standard_normal((100, 50)).astype(np.float32)
  forwards = np.zeros(50, np.float32)
  backwards = np.zeros(50, np.float32)
  for term in terms:
    forwards += term
  for term in terms[::-1]:
    backwards += term
  assert np.any(forwards != backwards)
  closeness.assert_close(forwards, backwards)
  with pytest.raises(AssertionError, match='is allowed'):
    closeness.assert_close(forwards * np.float32(1.001), backwards)


@pytest.mark.parametrize(
  'actual, expected',
  [
    ([1.0, np.nan], [1.0, 2.0]),
    ([1.0, 2.0], [1.0, np.nan]),
    ([1.0, np.inf], [1.0, -np.inf]),
    ([1.0], [1.0, 1.0]),
    (1.0, [1.0]),
  ],
)
def test_other_shapes_and_other_places_of_nan_and_infinity_are_no_roundings(actual, expected):
  with pytest.raises(AssertionError):
    closeness.assert_close(actual, expected)


def test_nan_is_close_to_nan_and_without_tolerance_every_bit_counts():
  closeness.assert_close([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], rtol=0, atol=0)
  closeness.assert_close([], [], rtol=0, atol=0)
  with pytest.raises(AssertionError):
    closeness.assert_close(np.nextafter(np.float32(1), np.float32(2)), 1.0, rtol=0, atol=0)
