"""Federated averaging in pfl-research with PyTorch: a process of one thread a core.

usage: PYTHON pfl_rounds.py WORKLOAD, or by PYTHON -m torch.distributed.run

All processes wait for each other before a round, so that none begins before it is asked for.
"""

import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

# It needs NumPy only; what this toolkit's packages need is absent here.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'benchmarks'))
import workloads

_ROUNDS = 10**9  # As many as are asked for.
_RANK, _PROCESSES = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))


class _Requests(TrainingProcessCallback):
  """Waits for a request before each round and answers after it."""

  def __init__(self) -> None:
    self._start = 0.0

  def on_train_begin(self, *, model: Any) -> Metrics:
    """Waits for the first request."""
    self._wait()
    return Metrics()

  def after_central_iteration(
    self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
  ) -> tuple[bool, Metrics]:
    """Answers, then waits for the next request; stops where there is none."""
    seconds = time.perf_counter() - self._start
    peak = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if _PROCESSES > 1:
      torch.distributed.reduce(peak, 0)
    if _RANK == 0:
      print(json.dumps({'seconds': seconds, 'peak_mb': float(peak)}), flush=True)
    return self._wait(), Metrics()

  def _wait(self) -> bool:
    """Whether requests have ended; all processes learn it at the same moment."""
    ended = torch.tensor(float(_RANK == 0 and not sys.stdin.readline()))
    self._start = time.perf_counter()
    if _PROCESSES > 1:
      torch.distributed.broadcast(ended, 0)
    return bool(ended)


class _Characters(nn.Module):
  """Shakespeare's model: embedding 8, two LSTM layers of 256, 90 characters."""

  def __init__(self) -> None:
    super().__init__()
    self.embedding = nn.Embedding(90, 8)
    self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
    self.output = nn.Linear(256, 90)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    """int64 [B, 80] -> float32 [B, 80, 90]."""
    return self.output(self.lstm(self.embedding(x))[0])


def _build(workload: workloads.Workload) -> tuple[nn.Module, Callable[[Any, Any], Any]]:
  """A workload's model and the mean loss that this project's has, `(outputs, y) -> []`."""
  cross_entropy = nn.CrossEntropyLoss()
  if workload.name.startswith('W1'):
    stack = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    stack += [nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU()]
    return nn.Sequential(*stack, nn.Dropout(0.5), nn.Linear(128, 62)), cross_entropy
  if workload.name == 'W2':
    return nn.Linear(10000, 500), nn.BCEWithLogitsLoss()
  if workload.name == 'W3':
    return _Characters(), lambda outputs, y: cross_entropy(outputs.flatten(0, 1), y.flatten())
  stack = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 26)]
  return nn.Sequential(*stack), cross_entropy


def _arrays(workload: workloads.Workload, client: int) -> list[torch.Tensor]:
  """A client's x and y as PyTorch takes them: channels first, class numbers int64."""
  x, y = map(torch.from_numpy, workloads.synthetic_client(workload, client).values())
  if workload.name.startswith('W1'):
    x = x.permute(0, 3, 1, 2).contiguous()
  if workload.name == 'W3':
    x = x.long()
  return [x, y if y.dtype == torch.float32 else y.long()]


def main() -> None:
  """Does rounds until standard input closes."""
  workload = workloads.WORKLOADS[sys.argv[1]]
  torch.set_num_threads(1 if _PROCESSES > 1 else len(os.sched_getaffinity(0)))
  data = [_arrays(workload, client) for client in range(workload.pool)]
  torch.manual_seed(0)  # Only differences of weights are exchanged: all must begin with the same.
  module, loss = _build(workload)

  def mean_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    module.train()
    return loss(module(x), y)

  def metrics(x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
    module.eval()
    return {'loss': Weighted(float(loss(module(x), y)) * len(x), len(x))}

  module.loss, module.metrics = mean_loss, metrics
  model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
  cohorts = _cohort_members(workload)
  clients = FederatedDataset(
    lambda client: Dataset(raw_data=data[client % workload.pool], user_id=str(client)),
    lambda: next(cohorts),
  )
  params = NNAlgorithmParams(
    central_num_iterations=_ROUNDS,
    evaluation_frequency=_ROUNDS,  # Only round 0 measures clients, and it is not counted.
    train_cohort_size=workload.cohort,
    val_cohort_size=0,
  )
  local = NNTrainHyperParams(
    local_num_epochs=workload.epochs,
    local_learning_rate=workload.rate,
    local_batch_size=workload.batch_size,
  )
  FederatedAveraging().run(
    params,
    SimulatedBackend(clients, clients, postprocessors=[WeightByDatapoints()]),
    model,
    local,
    callbacks=[_Requests()],
    send_metrics_to_platform=False,
  )


def _cohort_members(workload: workloads.Workload) -> Iterator[int]:
  """The clients of round 0, of round 1, ..."""
  for r in range(_ROUNDS):
    yield from workloads.cohort(workload, workload.population, r)


if __name__ == '__main__':
  main()
