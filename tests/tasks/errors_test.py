"""The range of an option has both of its ends."""

import math

import pytest

from tff_adaptive_tasks import errors


def test_a_range_has_both_ends_and_no_nan():
  errors.check_range('alpha', 1, 1, 2000)
  errors.check_range('alpha', 2000, 1, 2000)
  for value in (0.999, 2000.1, math.nan):
    with pytest.raises(errors.DataError, match=f'alpha is {value}; it must be from 1 to 2,000'):
      errors.check_range('alpha', value, 1, 2000)
