"""Facts about the checks: what passes, what is refused, and in which words."""

import fractions
import math

import numpy as np
import pytest

from tff_adaptive._utils import validation

# What passes, and what does not.
CHECKS = {
  validation.real: ((-3.0, 0.0, 5.0), ()),
  validation.at_least_zero: ((0.0, 1e30), (-1e-30,)),
  validation.above_zero: ((1e-30, 1e30), (0.0, -1.0)),
  validation.at_least_one: ((1.0, 1e30), (0.999,)),
  validation.in_unit_interval: ((0.0, 0.999), (-0.1, 1.0)),
  validation.in_half_open_unit_interval: ((1e-30, 1.0), (0.0, 1.001)),
  validation.up_to_one: ((0.0, 1.0), (-0.1, 1.001)),
  validation.whole: ((0, 5), (-1,)),
  validation.count: ((1, 5), (0,)),
}


@pytest.mark.parametrize('check', CHECKS)
def test_the_range_ends_where_the_name_says(check):
  inside, outside = CHECKS[check]
  for value in inside:
    assert check('x', value, 'do') == value
  for value in outside:
    with pytest.raises(ValueError, match=f'^x must be .*, found {value}: do\\.$'):
      check('x', value, 'do')


def test_what_is_no_number_that_float32_can_hold_is_refused_and_its_ends_and_other_kinds_pass():
  for bad in ('1', None, True, [1.0], 1j):
    with pytest.raises(TypeError, match=r'^x must be a number, found .*: do\.$'):
      validation.real('x', bad, 'do')
  for bad in (1e308, -3.5e38, 1e-38, 10**40, 2**4000, math.inf, -math.inf, math.nan):
    if bad - bad == 0:
      words = 'a number that float32 can hold'
    else:
      words = 'finite'
    with pytest.raises(ValueError, match=rf'^x must be {words}, .*found .*: do\.$'):
      validation.real('x', bad, 'do')
  limits = np.finfo(np.float32)
  for value in (limits.max, limits.tiny, float(limits.max), 0, 7, fractions.Fraction(1, 3)):
    assert validation.real('x', value, 'do') == value


def test_whole_numbers_are_bounded_by_int64_or_as_asked():
  for value in (0, 2**63 - 1, np.int64(5)):
    validation.whole_number('x', value, 0, 'do')
  for bad, words in ((-1, 'at least 0, found -1'), (2**63, f'at most {2**63 - 1}, found {2**63}')):
    with pytest.raises(ValueError, match=rf'^x must be {words}: do\.$'):
      validation.whole_number('x', bad, 0, 'do')
  with pytest.raises(ValueError, match='at most 9, found 10'):
    validation.whole_number('x', 10, 0, 'do', high=9)
  with pytest.raises(ValueError, match='found an integer of 20001 bits'):
    validation.whole_number('x', 2**20000, 0, 'do')  # Python prints no integer as long as this.
  for bad in (True, 1.0, '1', None):
    with pytest.raises(TypeError, match=r'^x must be a whole number, found '):
      validation.whole_number('x', bad, 0, 'do')
