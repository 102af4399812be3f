"""How unlike each other the clients of a partition are, in numbers. No TensorFlow."""

from collections.abc import Sequence
from typing import Optional

import numpy as np


def label_counts(
  labels: np.ndarray, partition: Sequence[np.ndarray], num_classes: Optional[int] = None
) -> np.ndarray:
  """Counts each client's labels.

  Args:
    labels: int [n], each at least 0.
    partition: Row numbers by client.
    num_classes: Columns of the table; by default the largest label plus one.

  Returns:
    int64 [clients, classes].
  """
  labels = np.asarray(labels)
  num_classes = int(labels.max()) + 1 if num_classes is None else num_classes
  return np.stack([np.bincount(labels[p], minlength=num_classes) for p in partition])


def report(labels: np.ndarray, partition: Sequence[np.ndarray]) -> dict[str, float]:
  """Sums up how unlike each other the clients are.

  Args:
    labels: int [n].
    partition: Row numbers by client.

  Returns:
    By name: clients, examples; smallest, largest and mean size; classes_per_client and
    largest_class_share, means over clients; total_variation, the mean distance between a client's
    label distribution and that of all (0 alike, towards 1 unlike).
  """
  counts = label_counts(labels, partition)
  sizes = counts.sum(1)
  shares = counts / sizes[:, None]
  overall = counts.sum(0) / counts.sum()
  return {
    'clients': len(counts),
    'examples': int(sizes.sum()),
    'smallest': int(sizes.min()),
    'largest': int(sizes.max()),
    'mean': float(sizes.mean()),
    'classes_per_client': float((counts > 0).sum(1).mean()),
    'largest_class_share': float(shares.max(1).mean()),
    'total_variation': float(0.5 * np.abs(shares - overall).sum(1).mean()),
  }
