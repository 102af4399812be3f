"""A run's summary, from rows written by hand."""

import math

import pytest

from tff_adaptive.runs import summary as summary_lib


@pytest.mark.parametrize(
  'values, expected',
  [([1.0, 2.0, 6.0], 3.0), ([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_the_mean_is_over_the_last_100_rounds_evaluations_finite_or_not(values, expected):
  rows = [{'round': 50, 'validation_loss': 1e6}]
  rows += [{'round': 150 + i, 'validation_loss': v} for i, v in enumerate(values, 1)]
  summary = summary_lib.summarize(rows, True)
  assert summary['mean_last_100_rounds'] == pytest.approx(
    {'validation_loss': expected}, nan_ok=True
  )
  assert summary['evaluations_averaged'] == len(values)
