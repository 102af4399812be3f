"""Federated averaging in pfl-research with PyTorch: a process of one thread a core.

usage: PYTHON pfl_rounds.py WORKLOAD [DATA_DIR], or after PYTHON launch.py PROCESSES

All processes wait for each other before a round, so that none begins before it is asked for.
"""

import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import serving
import torch
import torch_models
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

_ROUNDS = 10**9  # As many as are asked for.


def _end_with_the_first() -> None:
  """Ends this process when the one that started it has ended."""
  sys.stdin.read()
  os._exit(1)


class _Requests(TrainingProcessCallback):
  """Waits for a request before each round and answers after it."""

  def __init__(self, distributed: bool, is_first: bool) -> None:
    self._distributed = distributed
    self._requests = serving.requests() if is_first else None
    self._start = 0.0

  def on_train_begin(self, *, model: Any) -> Metrics:
    """Waits for the first request."""
    self._wait()
    return Metrics()

  def after_central_iteration(
    self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
  ) -> tuple[bool, Metrics]:
    """Answers, then waits for the next request; stops where there is none."""
    if self._requests is not None:
      serving.answer(seconds=time.perf_counter() - self._start)
    return self._wait(), Metrics()

  def _wait(self) -> bool:
    """Whether requests have ended; all processes learn it at the same moment."""
    ended = torch.zeros(1)
    if self._requests is not None and next(self._requests, None) is None:
      ended += 1
    self._start = time.perf_counter()
    if self._distributed:
      torch.distributed.broadcast(ended, 0)
    return bool(ended)


def main() -> None:
  """Does rounds until standard input closes."""
  workload = serving.workload()
  rank, processes = int(os.environ.get('RANK', 0)), int(os.environ.get('WORLD_SIZE', 1))
  torch.set_num_threads(1 if processes > 1 else len(os.sched_getaffinity(0)))
  if rank > 0:
    threading.Thread(target=_end_with_the_first, daemon=True).start()
  pool = workload.pool
  data = [torch_models.arrays(workload, client) for client in range(pool)]
  torch.manual_seed(0)  # Only differences of weights are exchanged: all must begin with the same.
  module, loss = torch_models.build(workload)

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
    lambda client: Dataset(raw_data=list(data[client % pool]), user_id=str(client)),
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
    callbacks=[_Requests(processes > 1, rank == 0)],
    send_metrics_to_platform=False,
  )


def _cohort_members(workload: Any) -> Iterator[int]:
  """The clients of round 0, of round 1, ..."""
  for r in range(_ROUNDS):
    yield from serving.workloads.cohort(workload, workload.population, r)


if __name__ == '__main__':
  main()
