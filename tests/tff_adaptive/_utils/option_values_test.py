"""What the text of an option means."""

import math

import pytest

from tff_adaptive._utils import option_values


@pytest.mark.parametrize(
  'text, expected',
  [
    ('3', 3),
    ('0.5', 0.5),
    ('1e3', 1000.0),
    ('TRUE', True),
    ('false', False),
    ('inf', math.inf),
    ('nan', 'nan'),
    ('iid', 'iid'),
  ],
)
def test_numbers_and_truth_values_are_such_and_other_texts_stay(text, expected):
  value = option_values.value(text)
  assert (value, type(value)) == (expected, type(expected))
