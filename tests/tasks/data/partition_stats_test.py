"""Numbers of a partition by hand."""

import numpy as np
import pytest

from tff_adaptive_tasks.data import partition_stats


def test_counts_and_report_by_hand():
  counts = partition_stats.counts_by_client([np.array([0, 0]), np.array([0, 1])])
  np.testing.assert_array_equal(counts, [[2, 0], [1, 1]])
  report = partition_stats.report_of_counts(counts)
  assert report == {
    **{'clients': 2, 'examples': 4, 'smallest': 2, 'largest': 2, 'median': 2, 'mean': 2},
    'classes_per_client': 1.5,
    'largest_class_share': 0.75,
    'total_variation': pytest.approx(0.25),
  }
