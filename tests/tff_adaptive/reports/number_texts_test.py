"""Numbers in tables."""

import math

import pytest

from tff_adaptive.reports import number_texts


@pytest.mark.parametrize(
  'values, digits, expected',
  [
    ([], 4, ''),
    ([0.5], 4, '0.5000'),
    ([50.0, 52.0], 2, '51.00 ± 1.41'),
    ([0.0, 0.0], 4, '0.0000 ± 0.0000'),
    ([1.2e-6], 4, '1.2e-06'),
    ([1e-6, 2e-6], 4, '1.5e-06 ± 7.07e-07'),
    ([-0.000124], 4, '-0.000124'),
    ([0.04], 1, '0.04'),
    ([3, 4], 0, '4 ± 1'),
    ([math.nan, 1.0], 4, 'nan ± nan'),
    ([-math.inf], 4, '-inf'),
  ],
)
def test_small_means_have_significant_digits(values, digits, expected):
  assert number_texts.spread(values, digits) == expected


def test_numbers_have_as_many_digits_as_tell_them_apart():
  assert number_texts.distinct([0.1, 1.0, 0.0316227], 3) == {
    0.1: '0.1',
    1.0: '1',
    0.0316227: '0.0316',
  }
  assert list(number_texts.distinct([0.12341, 0.12344], 3).values()) == ['0.12341', '0.12344']
  close = (0.1, 0.1 + 2e-17, 0.30000000000000004, 0.3)
  assert len({*number_texts.distinct(close, 3).values()}) == len({*close})


@pytest.mark.parametrize(
  'texts, expected',
  [
    ('10 2 20 5', '2 5 10 20'),
    ('b a none 10 2', 'b a none 2 10'),
    ('alpha=10 alpha=inf alpha=3 alpha=0.3', 'alpha=0.3 alpha=3 alpha=10 alpha=inf'),
    ('c=1e-05 c=0.001 c=-1 information', 'c=-1 c=1e-05 c=0.001 information'),
    ('fed_avg,n=10 fed_yogi,n=10 fed_avg,n=9', 'fed_avg,n=9 fed_avg,n=10 fed_yogi,n=10'),
    ('v10 v2', 'v10 v2'),
  ],
)
def test_numbers_are_sorted_as_numbers_and_texts_stay(texts, expected):
  assert number_texts.in_order(texts.split()) == expected.split()
