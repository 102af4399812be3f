"""Ranks of methods over several problems, and whether these can tell the methods apart."""

from typing import Any, NamedTuple

import numpy as np

LEVEL = 0.05


class Ranks(NamedTuple):
  """Ranks of methods on problems.

  Attributes:
    by_problem: A `pandas.DataFrame` with a row for each problem and a column for each method. 1 is
      the best; equal values share the mean of their ranks.
    p: The p-value of Friedman's test; NaN for fewer than three problems or methods.
    critical_difference: How far apart average ranks must be at 5 % by Nemenyi's test (Demsar,
      "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006, equation (5)).
  """

  by_problem: Any
  p: float
  critical_difference: float


def average_ranks(values: Any) -> Ranks:
  """Returns the ranks of methods on problems.

  Args:
    values: A `pandas.DataFrame` with a row for each problem and a column for each method. Large
      values are good, and NaN is the worst.
  """
  from scipy import stats  # Slow to import and needed here only.

  ranks = values.rank(axis=1, ascending=False, na_option='bottom')
  problems, methods = values.shape
  # The quantile for infinitely many degrees of freedom, as in Demsar's table 5.
  quantile = stats.studentized_range.ppf(1 - LEVEL, methods, np.inf) / np.sqrt(2)
  # SciPy's test refuses fewer methods, and its approximation is too rough for two problems.
  p = np.nan
  if min(problems, methods) > 2:
    p = stats.friedmanchisquare(*ranks.T.to_numpy()).pvalue
  # Demsar's equation (5): q sqrt(k (k + 1) / (6 N)), where q is the quantile over sqrt(2).
  difference = np.nan
  if problems:
    difference = quantile * np.sqrt(methods * (methods + 1) / (6 * problems))
  return Ranks(ranks, float(p), float(difference))
