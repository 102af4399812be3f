"""How unlike each other the clients of a partition are, in numbers. No TensorFlow."""

from collections.abc import Sequence

import numpy as np


def label_counts(
  labels: np.ndarray, partition: Sequence[np.ndarray], num_classes: int | None = None
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


def counts_by_client(labels: Sequence[np.ndarray]) -> np.ndarray:
  """As `label_counts`, from the labels of each client."""
  num_classes = 1 + max(int(np.max(y)) for y in labels)
  return np.stack([np.bincount(y, minlength=num_classes) for y in labels])


def report(labels: np.ndarray, partition: Sequence[np.ndarray]) -> dict[str, float]:
  """Sums up how unlike each other the clients of a partition are; see `report_of_counts`.

  Args:
    labels: int [n].
    partition: Row numbers by client.
  """
  return report_of_counts(label_counts(labels, partition))


def report_of_sizes(sizes: Sequence[int]) -> dict[str, float]:
  """Clients, examples; smallest, largest, median and mean size."""
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
