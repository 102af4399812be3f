"""The numbers of a partition, against ones found by hand."""

import numpy as np

from tff_adaptive_tasks.data import partition_stats


def test_the_report_counts():
  labels = np.array([0, 0, 1, 1])
  report = partition_stats.report(labels, [np.array([0, 1]), np.array([2, 3])])
  assert report['clients'] == 2
  assert report['examples'] == 4
  assert report['total_variation'] == 0.5
  assert report['largest_class_share'] == 1
  np.testing.assert_array_equal(
    partition_stats.label_counts(labels, [np.array([0, 2, 3])]), [[1, 2]]
  )
