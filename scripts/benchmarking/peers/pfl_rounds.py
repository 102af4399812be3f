"""Federated averaging in pfl-research with PyTorch: a process of one thread a core.

usage: PYTHON pfl_rounds.py WORKLOAD PROCESSES

With several processes, torch.distributed joins them: the first one starts the others, and all
wait for each other before a round, so that none begins before it is asked for.
"""

import os
import socket
import subprocess
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


def _start_others(processes: int) -> list[subprocess.Popen]:
  """Starts the processes after the first and sets what torch.distributed reads."""
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  joint = {
    'TORCHELASTIC_RUN_ID': 'benchmark',
    'MASTER_ADDR': '127.0.0.1',
    'MASTER_PORT': str(port),
    'WORLD_SIZE': str(processes),
    'LOCAL_WORLD_SIZE': str(processes),
  }
  os.environ.update(joint, RANK='0', LOCAL_RANK='0')
  return [
    subprocess.Popen(
      [sys.executable, *sys.argv],
      env={**os.environ, 'RANK': str(rank), 'LOCAL_RANK': str(rank)},
      stdin=subprocess.PIPE,  # Closed when this process ends, however it ends.
      stdout=subprocess.DEVNULL,
    )
    for rank in range(1, processes)
  ]


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
  workload, processes = serving.workload(), int(sys.argv[2])
  torch.set_num_threads(1 if processes > 1 else len(os.sched_getaffinity(0)))
  others = []
  if 'RANK' in os.environ:
    threading.Thread(target=_end_with_the_first, daemon=True).start()
  elif processes > 1:
    others = _start_others(processes)
  pool = min(workload.population, serving.workloads.POOL)
  data = [torch_models.arrays(workload, client) for client in range(pool)]
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
    user_id_to_weight=dict.fromkeys(range(workload.population), workload.examples),
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
    callbacks=[_Requests(processes > 1, os.environ.get('RANK', '0') == '0')],
    send_metrics_to_platform=False,
  )
  for other in others:
    other.wait()


def _cohort_members(workload: Any) -> Iterator[int]:
  """The clients of round 0, of round 1, ..."""
  for r in range(_ROUNDS):
    yield from serving.workloads.cohort(workload, workload.population, r)


if __name__ == '__main__':
  main()
