"""The partitions of PFLlib, recomputed: the same rows from the same seed.

They follow `separate_data` and `split_data` of its `dataset/utils/dataset_utils.py`. NumPy's older
random numbers, `RandomState`, are part of this.
"""

import abc
import dataclasses
import math
from typing import Any

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data.dirichlet import Partitioner, codes_of, dirichlet
from tff_adaptive_tasks.data.partition import Partition


class _FromPfllib(Partitioner):
  """The base class of PFLlib's partitions, which draw the clients' rows and then their splits."""

  seed: int

  @abc.abstractmethod
  def _draw(self, labels: Any, rng: np.random.RandomState) -> Partition:
    """Returns each client's rows."""

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`."""
    return self._draw(labels, np.random.RandomState(self.seed))

  def train_and_test(self, labels: Any) -> tuple[Partition, Partition]:
    """Returns each client's rows for training, three in four, and for tests, as PFLlib has them."""
    rng = np.random.RandomState(self.seed)
    return _train_and_test(self._draw(labels, rng), rng)


@dataclasses.dataclass(frozen=True)
class PfllibPartitioner(_FromPfllib):
  """PFLlib's "practical" label skew, with the same rows from the same seed.

  `dataset/utils/dataset_utils.py` of PFLlib divides the training and the test split, joined in this
  order, by the scheme of `DirichletPartitioner`, with NumPy's older random numbers.

  Attributes:
    num_partitions: Number of clients.
    alpha: Concentration of the Dirichlet distribution over the clients.
    min_partition_size: The smallest number of examples of a client, or half the mean number if this
      is less. PFLlib has 40; from November 2023 to October 2024 it had 1.
    seed: The seed; PFLlib's programs set 1.
  """

  num_partitions: int = 20
  alpha: float = 0.1
  min_partition_size: int = 40
  seed: int = 1

  def _draw(self, labels: Any, rng: np.random.RandomState) -> Partition:
    codes = codes_of(labels)
    errors.check_range('num_partitions', self.num_partitions, 1, len(codes))
    smallest = int(min(self.min_partition_size, len(codes) / self.num_partitions / 2))
    return dirichlet(codes, self.num_partitions, self.alpha, smallest, True, rng)


@dataclasses.dataclass(frozen=True)
class PfllibPathologicalPartitioner(_FromPfllib):
  """PFLlib's "pathological" label skew, with the same rows from the same seed.

  Each client has some classes, the first clients the first classes. Of a class the clients get
  different numbers of examples, in the order of the data; the last one gets what is left.

  Attributes:
    num_partitions: Number of clients.
    num_classes_per_partition: Number of classes of each client.
    balance: Whether the clients of a class get equal numbers of its examples.
    seed: The seed; PFLlib's programs set 1.
  """

  num_partitions: int = 20
  num_classes_per_partition: int = 2
  balance: bool = False
  seed: int = 1

  def _draw(self, labels: Any, rng: np.random.RandomState) -> Partition:
    codes = codes_of(labels)
    num_classes = int(codes.max()) + 1
    errors.check_range('num_partitions', self.num_partitions, 1, len(codes))
    errors.check_range('num_classes_per_partition', self.num_classes_per_partition, 1, num_classes)
    most = math.ceil(self.num_partitions / num_classes * self.num_classes_per_partition)
    classes_left = np.full(self.num_partitions, self.num_classes_per_partition)
    rows_of: list[list[np.ndarray]] = [[] for _ in range(self.num_partitions)]
    for label in range(num_classes):
      rows = np.flatnonzero(codes == label)
      # The first clients that may have more classes, so that classes go round in order.
      clients = np.flatnonzero(classes_left)[:most]
      if not clients.size:
        raise errors.DataError(
          f'{self.num_partitions} clients with {self.num_classes_per_partition} classes cannot '
          f'have all {num_classes} classes: take more clients, or more classes for each'
        )
      # The same arithmetic as in PFLlib, or the random numbers would have other limits.
      mean = len(rows) / len(clients)
      if self.balance:
        sizes = np.full(len(clients) - 1, int(mean))
      else:
        # PFLlib's lower limit is this, or 4 examples of ten classes if that is more.
        least = max(mean / 10, 40 / num_classes)
        if int(least) >= int(mean):
          raise errors.DataError(
            f'the class with the number {label} has too few examples, {len(rows)}, for '
            f'{len(clients)} clients: take fewer clients'
          )
        sizes = rng.randint(int(least), int(mean), len(clients) - 1)
      for client, piece in zip(clients, np.split(rows, np.cumsum(sizes))):
        rows_of[client].append(piece)
      classes_left[clients] -= 1
    if not all(rows_of):
      raise errors.DataError(
        f'of {self.num_partitions} clients with {self.num_classes_per_partition} of {num_classes} '
        'classes some would have no examples: choose numbers of which the product is a multiple of '
        'the number of classes'
      )
    return [np.concatenate(pieces) for pieces in rows_of]


def _train_and_test(parts: Partition, rng: np.random.RandomState) -> tuple[Partition, Partition]:
  """Splits each client's rows as scikit-learn's `train_test_split(train_size=0.75)` does."""
  train = []
  test = []
  for rows in parts:
    # scikit-learn takes the test rows first.
    order = rng.permutation(len(rows))
    num_train = len(rows) * 3 // 4
    num_test = len(rows) - num_train
    test.append(rows[order[:num_test]])
    train.append(rows[order[num_test:]])
  return train, test
