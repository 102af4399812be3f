"""A metric over clients: what each statistic is, by hand."""

import numpy as np
import pytest

from tff_adaptive.reports import client_statistics

# Of 11 clients, the last without anything to divide by: correct answers and examples.
SUMS = np.array(
  [[1, 1], [3, 4], [5, 10], [2, 8], [0, 2], [7, 7], [1, 10], [9, 10], [4, 5], [6, 9], [0, 0]],
  np.float64,
)
VALUES = np.array([1, 0.75, 0.5, 0.25, 0, 1, 0.1, 0.9, 0.8, 6 / 9])


def test_every_statistic_is_what_it_is_called():
  found = client_statistics.describe(SUMS, 'accuracy')
  assert list(found) == list(client_statistics.STATISTICS)
  assert found['by_examples'] == pytest.approx(38 / 66)
  assert found['mean'] == pytest.approx(VALUES.sum() / 10)
  assert found['std'] == pytest.approx(np.sqrt(np.mean((VALUES - VALUES.mean()) ** 2)))
  ordered = np.sort(VALUES)
  assert found['p10'] == pytest.approx(ordered[0] + 0.9 * (ordered[1] - ordered[0]))
  assert found['p50'] == pytest.approx((ordered[4] + ordered[5]) / 2)
  assert found['p90'] == pytest.approx(ordered[8] + 0.1 * (ordered[9] - ordered[8]))
  assert found['worst_tenth'] == 0.0


def test_the_worst_tenth_is_rounded_up_and_is_at_the_other_end_for_errors():
  sums = np.stack([np.arange(11.0), np.ones(11)], 1)
  assert client_statistics.describe(sums, 'recall_at_5')['worst_tenth'] == 0.5
  for metric in ('loss', 'mse', 'mean_absolute_error'):
    assert client_statistics.describe(sums, metric)['worst_tenth'] == 9.5


def test_nobody_and_infinite_losses():
  assert np.isnan(list(client_statistics.describe(SUMS[-1:], 'loss').values())).all()
  sums = np.array([[np.inf, 1], [1, 1]])
  found = client_statistics.describe(sums, 'loss')
  assert found['worst_tenth'] == found['mean'] == np.inf
