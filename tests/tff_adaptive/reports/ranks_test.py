"""Ranks of methods over problems, and the critical difference."""

import numpy as np
import pandas as pd
import pytest

from tff_adaptive.reports import ranks as ranks_lib


def test_ranks_and_the_critical_difference_are_those_of_the_tables():
  values = pd.DataFrame(
    {'a': [0.9, 0.8, 0.9, 0.7], 'b': [0.8, 0.8, 0.7, 0.6], 'c': [0.1, 0.9, np.nan, 0.5]}
  )
  ranks, p, difference = ranks_lib.average_ranks(values)
  np.testing.assert_array_equal(ranks, [[1, 2, 3], [2.5, 2.5, 1], [1, 2, 3], [1, 2, 3]])
  assert difference == pytest.approx(2.343 * np.sqrt(3 * 4 / (6 * 4)), rel=1e-3)  # Demsar, table 5.
  # By hand, the tie corrected for: 12 / (4 * 3 * 4) * sum(R^2) - 3 * 4 * 4 over 1 - 6 / (4 * 24).
  statistic = (12 / 48 * (5.5**2 + 8.5**2 + 10**2) - 48) / (1 - 6 / 96)
  assert p == pytest.approx(np.exp(-statistic / 2))  # Chi-squared with two degrees of freedom.


def test_two_problems_have_ranks_but_no_test():
  values = pd.DataFrame({'a': [0.9, 0.8], 'b': [0.8, 0.9], 'c': [0.1, np.nan]})
  ranks, p, _ = ranks_lib.average_ranks(values)
  np.testing.assert_array_equal(ranks.mean(), [1.5, 1.5, 3])
  assert np.isnan(p)
