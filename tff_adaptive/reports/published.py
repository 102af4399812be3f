"""Figures that papers published, to stand beside runs on the same data."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

# "Adaptive Federated Optimization" (Reddi et al., 2021), Table 1: means over the last 100 rounds,
# in the units of `TASKS`. Optimizers in the paper's order.
OPTIMIZERS = ('FedAdagrad', 'FedAdam', 'FedYogi', 'FedAvgM', 'FedAvg')


@dataclasses.dataclass(frozen=True)
class Task:
  """A row of the table.

  Attributes:
    title: The task's name there.
    metric: What is measured.
    factor: By which it is multiplied there.
    clients: The benchmark's training clients: data with another number are not the benchmark.
    figures: Of each optimizer of `OPTIMIZERS`.
  """

  title: str
  metric: str
  factor: float
  clients: int
  figures: tuple[float, ...]


TASKS: Mapping[str, Task] = MappingProxyType(
  {
    'cifar10': Task('CIFAR-10', 'accuracy', 100, 500, (72.1, 77.4, 78.0, 77.4, 72.8)),
    'cifar100': Task('CIFAR-100', 'accuracy', 100, 500, (47.9, 52.5, 52.4, 52.4, 44.7)),
    'emnist_cr': Task('EMNIST CR', 'accuracy', 100, 3400, (85.1, 85.6, 85.5, 85.2, 84.9)),
    'shakespeare': Task('Shakespeare', 'accuracy', 100, 715, (57.5, 57.0, 57.2, 57.3, 56.9)),
    'stackoverflow_nwp': Task('SO NWP', 'accuracy', 100, 342477, (23.8, 25.2, 25.2, 23.8, 19.5)),
    'stackoverflow_lr': Task('SO LR', 'recall_at_5', 100, 342477, (67.1, 65.8, 65.9, 36.9, 30.0)),
    'emnist_ae': Task('EMNIST AE', 'mse', 1000, 3400, (4.20, 1.01, 0.98, 1.65, 6.47)),
  }
)
