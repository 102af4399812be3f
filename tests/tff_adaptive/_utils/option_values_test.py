"""What the text of an option means."""

import math

import pytest

from tff_adaptive._utils import option_values


@pytest.mark.parametrize(
  'text, expected',
  [('3', 3), ('0.5', 0.5), ('1e3', 1000.0), ('TRUE', True), ('false', False), ('nan', 'nan')],
)
def test_numbers_and_truth_values_are_such(text, expected):
  found = option_values.value(text)
  assert found == expected
  assert type(found) is type(expected)


def test_other_texts_stay():
  assert option_values.value('iid') == 'iid'
  assert option_values.value('inf') == math.inf
