"""How unlike each other the clients of a partition are, in numbers. No TensorFlow."""

from collections.abc import Sequence

import numpy as np


def counts_by_client(labels: Sequence[np.ndarray]) -> np.ndarray:
  """How often each client has each label, int64 [clients, classes], from the labels of each."""
  num_classes = 1 + max(int(np.max(y)) for y in labels)
  return np.stack([np.bincount(y, minlength=num_classes) for y in labels])


def report_of_sizes(sizes: Sequence[int]) -> dict[str, float]:
  """Returns the clients, the examples, and the smallest, largest, median and mean size."""
  return {
    'clients': len(sizes),
    'examples': int(np.sum(sizes)),
    'smallest': int(np.min(sizes)),
    'largest': int(np.max(sizes)),
    'median': float(np.median(sizes)),
    'mean': float(np.mean(sizes)),
  }


def report_of_counts(counts: np.ndarray) -> dict[str, float]:
  """Sums up how unlike each other clients are.

  Args:
    counts: int [clients, classes], examples by label.

  Returns:
    What `report_of_sizes` gives, and by name: classes_per_client and largest_class_share, means
    over clients; total_variation, the mean distance between a client's label distribution and that
    of all (0 alike, towards 1 unlike).
  """
  sizes = counts.sum(1)
  shares = counts / sizes[:, None]
  overall = counts.sum(0) / counts.sum()
  return {
    **report_of_sizes(sizes),
    'classes_per_client': float((counts > 0).sum(1).mean()),
    'largest_class_share': float(shares.max(1).mean()),
    'total_variation': float(0.5 * np.abs(shares - overall).sum(1).mean()),
  }
