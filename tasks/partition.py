"""Divides examples over clients in the ways of published benchmarks.

A partitioner is called with one label for each example, and returns for each client an int64 array
of row numbers. No row is used twice, and all rows are used unless its class says otherwise.

    parts = tasks.partition.DirichletPartitioner(num_partitions=20, alpha=0.1)(y)
    clients = tasks.InMemoryClientData.from_partition(x, y, parts)

Classes and arguments are called as in Flower Datasets (`flwr_datasets.partitioner`) where they mean
the same; there a client is a partition. The draws are others. Nothing here imports TensorFlow.
"""

import abc
import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import partition as draws
from tff_adaptive_tasks.data.dirichlet import Partitioner as Partitioner, codes_of, dirichlet
from tff_adaptive_tasks.data.pfllib import (
  PfllibPartitioner as PfllibPartitioner,
  PfllibPathologicalPartitioner as PfllibPathologicalPartitioner,
)

Partition = draws.Partition


@dataclasses.dataclass(frozen=True)
class IidPartitioner(Partitioner):
  """Gives each client an IID sample.

  Attributes:
    num_partitions: Number of clients.
    unbalance: Standard deviation of the logarithm of the clients' sizes (not in Flower Datasets).
      With 0 sizes are equal up to one example.
    seed: The seed of the draws.
  """

  num_partitions: int
  unbalance: float = 0.0
  seed: int = 0

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`."""
    errors.check_range('num_partitions', self.num_partitions, 1, len(labels))
    return draws.iid(len(labels), self.num_partitions, self.seed, self.unbalance)


@dataclasses.dataclass(frozen=True)
class DirichletPartitioner(Partitioner):
  """Divides each class over the clients in proportions drawn from Dirichlet(alpha).

  The scheme is that of "Bayesian Nonparametric Federated Learning of Neural Networks" (Yurochkin
  et al., 2019), which NIID-Bench, Flower Datasets and PFLlib use too.

  Attributes:
    num_partitions: Number of clients.
    alpha: Concentration of the Dirichlet distribution over the clients, 1e-4 to 1e6.
    min_partition_size: All proportions are drawn again until each client has so many examples.
    self_balancing: Whether a client that has the mean number of examples already gets none of the
      next classes.
    seed: The seed of the draws.
  """

  num_partitions: int
  alpha: float = 0.5
  min_partition_size: int = 10
  self_balancing: bool = True
  seed: int = 0

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`. No success in 1,000 draws is a DataError."""
    codes = codes_of(labels)
    rng = np.random.default_rng([self.seed, 11])
    parts = dirichlet(
      codes, self.num_partitions, self.alpha, self.min_partition_size, self.self_balancing, rng
    )
    return [rng.permutation(rows) for rows in parts]


@dataclasses.dataclass(frozen=True)
class InnerDirichletPartitioner(Partitioner):
  """Gives each client its own proportions of the classes, drawn from Dirichlet(alpha).

  This is how FedDyn and AdaBest divide their data. It follows "Measuring the Effects of
  Non-Identical Data Distribution for Federated Visual Classification" (Hsu et al., 2019). If a
  class is used up, others take its place. In Flower Datasets the sizes are given one by one.

  Attributes:
    num_partitions: Number of clients.
    alpha: Concentration of the Dirichlet distribution over the classes, 1e-4 to 1e6.
    unbalance: Standard deviation of the logarithm of the clients' sizes.
    seed: The seed of the draws.
  """

  num_partitions: int
  alpha: float = 0.3
  unbalance: float = 0.0
  seed: int = 0

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`."""
    codes = codes_of(labels)
    errors.check_range('num_partitions', self.num_partitions, 1, len(codes))
    return draws.label_dirichlet(codes, self.num_partitions, self.alpha, self.seed, self.unbalance)


@dataclasses.dataclass(frozen=True)
class ShardPartitioner(Partitioner):
  """Sorts the examples by label, cuts them into shards, and deals these to the clients.

  It is the division of "Communication-Efficient Learning of Deep Networks from Decentralized Data"
  (McMahan et al., 2017). Sizes of shards differ by at most one example, so that all are used.

  Attributes:
    num_partitions: Number of clients.
    num_shards_per_partition: Number of shards of each client.
    seed: The seed of the draws.
  """

  num_partitions: int
  num_shards_per_partition: int = 2
  seed: int = 0

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`."""
    return draws.shards(
      codes_of(labels), self.num_partitions, self.num_shards_per_partition, self.seed
    )


@dataclasses.dataclass(frozen=True)
class PathologicalPartitioner(Partitioner):
  """Gives each client the same number of classes; a class is divided evenly over its clients.

  It is the label skew "#C = k" of "Federated Learning on Non-IID Data Silos: An Experimental Study"
  (Li et al., 2022). Classes that no client gets are left out, with a warning.

  Attributes:
    num_partitions: Number of clients.
    num_classes_per_partition: k, the number of classes of each client.
    class_assignment_mode: 'random' draws each client's classes. 'first-deterministic', as in the
      paper, gives client i the class i modulo their number, and draws its others. 'deterministic'
      gives client i the classes i, i + 1, ..., modulo their number.
    seed: The seed of the draws.
  """

  num_partitions: int
  num_classes_per_partition: int = 2
  class_assignment_mode: Literal['random', 'deterministic', 'first-deterministic'] = 'random'
  seed: int = 0

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`."""
    codes = codes_of(labels)
    sizes = np.bincount(codes)
    errors.check_range('num_partitions', self.num_partitions, 1, len(codes))
    errors.check_range('num_classes_per_partition', self.num_classes_per_partition, 1, len(sizes))
    rng = np.random.default_rng([self.seed, 12])
    # Who has which class is decided before the rows, so that a class can be cut evenly.
    has_class = np.zeros([self.num_partitions, len(sizes)], bool)
    for client in range(self.num_partitions):
      has_class[client, self._classes_of(client, len(sizes), rng)] = True
    wanted = has_class.sum(0)
    if (wanted > sizes).any():
      label = int(np.argmax(wanted - sizes))
      raise errors.DataError(
        f'{wanted[label]} clients would share the {sizes[label]} examples of the class with the '
        f'number {label}: take fewer clients, or fewer classes for each'
      )
    if not wanted.all():
      warnings.warn(
        f'no client has the classes with the numbers {np.flatnonzero(wanted == 0).tolist()}: their '
        "examples are left out; class_assignment_mode='deterministic' may use all",
        stacklevel=2,
      )
    rows_of: list[list[np.ndarray]] = [[] for _ in range(self.num_partitions)]
    for label in np.flatnonzero(wanted).tolist():
      # Their sizes differ by at most one.
      pieces = np.array_split(rng.permutation(np.flatnonzero(codes == label)), wanted[label])
      for client, piece in zip(np.flatnonzero(has_class[:, label]).tolist(), pieces):
        rows_of[client].append(piece)
    return [rng.permutation(np.concatenate(pieces)) for pieces in rows_of]

  def _classes_of(self, client: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Returns the numbers of a client's classes, of `count` in all."""
    size = self.num_classes_per_partition
    if self.class_assignment_mode == 'random':
      return rng.choice(count, size, replace=False)
    if self.class_assignment_mode == 'deterministic':
      return (client + np.arange(size)) % count
    if self.class_assignment_mode == 'first-deterministic':
      first = client % count
      others = np.delete(np.arange(count), first)
      return np.append(first, rng.choice(others, size - 1, replace=False))
    raise errors.DataError(
      f"class_assignment_mode is {self.class_assignment_mode!r:.80}; it must be 'random', "
      "'deterministic' or 'first-deterministic'"
    )


@dataclasses.dataclass(frozen=True)
class _BySize(Partitioner):
  """IID samples whose sizes grow with the number of the client, from 1 on."""

  num_partitions: int
  seed: int = 0

  @abc.abstractmethod
  def _units(self, numbers: np.ndarray) -> np.ndarray:
    """Returns numbers to which the sizes of the clients with these numbers are proportional."""

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`. Sizes are rounded down; the last has more."""
    count = len(labels)
    errors.check_range('num_partitions', self.num_partitions, 1, count)
    units = self._units(np.arange(1.0, self.num_partitions + 1))
    # As Flower Datasets rounds: what is left goes to the last and largest client.
    sizes = (units / units.sum() * count).astype(np.int64)
    sizes[-1] += count - sizes.sum()
    if not sizes.all():
      raise errors.DataError(
        f'{(sizes == 0).sum()} of {self.num_partitions} clients would have no example of {count}: '
        'take fewer clients'
      )
    order = np.random.default_rng([self.seed, 13]).permutation(count)
    return np.split(order, np.cumsum(sizes)[:-1])


@dataclasses.dataclass(frozen=True)
class LinearPartitioner(_BySize):
  """IID samples; client i of 1, 2, ... has a size proportional to i.

  Attributes:
    num_partitions: Number of clients.
    seed: The seed of the draws.
  """

  def _units(self, numbers: np.ndarray) -> np.ndarray:
    return numbers


@dataclasses.dataclass(frozen=True)
class SquarePartitioner(_BySize):
  """IID samples; client i of 1, 2, ... has a size proportional to the square of i.

  Attributes:
    num_partitions: Number of clients.
    seed: The seed of the draws.
  """

  def _units(self, numbers: np.ndarray) -> np.ndarray:
    return numbers**2


@dataclasses.dataclass(frozen=True)
class ExponentialPartitioner(_BySize):
  """IID samples; client i of 1, 2, ... has a size proportional to exp(i).

  Attributes:
    num_partitions: Number of clients.
    seed: The seed of the draws.
  """

  def _units(self, numbers: np.ndarray) -> np.ndarray:
    return np.exp(numbers - numbers[-1])  # exp(i) would overflow from 710 clients on.


@dataclasses.dataclass(frozen=True)
class SizePartitioner(Partitioner):
  """IID samples of the given sizes. If their sum is smaller, the other examples are left out.

  Attributes:
    partition_sizes: The number of examples of each client, at least one.
    seed: The seed of the draws.
  """

  partition_sizes: Sequence[int]
  seed: int = 0

  def __call__(self, labels: Any) -> Partition:
    """Returns each client's rows; see `Partitioner`."""
    sizes = np.asarray(self.partition_sizes)
    if sizes.ndim != 1 or sizes.dtype.kind not in 'iu' or not sizes.size or sizes.min() < 1:
      raise errors.DataError(
        f'partition_sizes is {self.partition_sizes!r:.80}; give one whole number, from 1 on, for '
        'each client'
      )
    errors.check_range('the sum of partition_sizes', int(sizes.sum()), 1, len(labels))
    order = np.random.default_rng([self.seed, 14]).permutation(len(labels))
    return np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])


@dataclasses.dataclass(frozen=True)
class NaturalIdPartitioner(Partitioner):
  """Gives each client the rows of one id, in order; it is called with the ids, not with labels.

  The clients are in the sorted order of the ids, `np.unique(ids)`. For a task with clients of these
  names use `tasks.from_arrays(x, y, ids)`.
  """

  def __call__(self, labels: Any) -> Partition:
    """Returns the rows of each different value of `labels`; see `Partitioner`."""
    codes = codes_of(labels)
    # Stable, so that each client's rows keep their order.
    order = np.argsort(codes, kind='stable')
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


# What `--task_option=partition=NAME` may be. Sizes and ids have no form on a command line.
NAMES: dict[str, type[Partitioner]] = {
  'iid': IidPartitioner,
  'dirichlet': DirichletPartitioner,
  'inner_dirichlet': InnerDirichletPartitioner,
  'shards': ShardPartitioner,
  'pathological': PathologicalPartitioner,
  'linear': LinearPartitioner,
  'square': SquarePartitioner,
  'exponential': ExponentialPartitioner,
  'pfllib': PfllibPartitioner,
  'pfllib_pathological': PfllibPathologicalPartitioner,
}


def feature_noise(
  x: np.ndarray, partition: Sequence[np.ndarray], noise: float, seed: int = 0
) -> np.ndarray:
  """Returns inputs with normal noise, whose variance grows from client to client.

  Client i of N has noise of variance `noise` * i / N, i = 1 to N: the feature skew of "Federated
  Learning on Non-IID Data Silos: An Experimental Study" (Li et al., 2022). A partition by
  `IidPartitioner` is the paper's.

  Args:
    x: Floating-point array [n, ...], the inputs of all clients.
    partition: Each client's row numbers.
    noise: Variance of the last client's noise, 0 to 1e6.
    seed: The seed of the draws.

  Raises:
    DataError: If x has no floating-point numbers, or `noise` is out of range.
  """
  x = np.asarray(x)
  if x.dtype.kind != 'f':
    raise errors.DataError(f'feature noise needs floating-point inputs; they are {x.dtype}')
  errors.check_range('feature_noise', noise, 0, 1e6)
  noisy = x.copy()
  for client, rows in enumerate(partition):
    # A generator for each client: its noise does not depend on the others' sizes.
    rng = np.random.default_rng([seed, 15, client])
    deviation = math.sqrt(noise * (client + 1) / len(partition))
    noisy[rows] += (deviation * rng.standard_normal([len(rows), *x.shape[1:]])).astype(x.dtype)
  return noisy
