"""Federated averaging in Flower's simulation engine (Ray) with PyTorch, one client a core.

usage: PYTHON flower_rounds.py WORKLOAD
"""

import functools
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import serving
import torch
import torch_models
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

_ROUNDS = 10**6  # As many as are asked for.


class _EndedError(Exception):
  """No more requests."""


class _Timed(FedAvg):
  """FedAvg that waits for a request before each round and answers after it."""

  def __init__(self, requests: Iterator[str], **options: Any) -> None:
    super().__init__(**options)
    self._requests = requests
    self._start = 0.0

  def configure_train(
    self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
  ) -> Iterable[Message]:
    """Begins a round when it is asked for."""
    if next(self._requests, None) is None:
      raise _EndedError
    self._start = time.perf_counter()
    return super().configure_train(server_round, arrays, config, grid)

  def aggregate_train(
    self, server_round: int, replies: Iterable[Message]
  ) -> tuple[ArrayRecord | None, MetricRecord | None]:
    """Ends the round."""
    found = super().aggregate_train(server_round, replies)
    serving.answer(seconds=time.perf_counter() - self._start)
    return found


@functools.lru_cache(maxsize=serving.workloads.POOL)
def _arrays(client: int) -> tuple[torch.Tensor, torch.Tensor]:
  """A client's data; each of Flower's workers makes those it meets, once."""
  return torch_models.arrays(serving.workload(), client)


def _train(message: Message, context: Context) -> Message:
  """What a client does: E epochs of SGD from the server's weights."""
  torch.set_num_threads(1)
  workload = serving.workload()
  pool = min(workload.population, serving.workloads.POOL)
  x, y = _arrays(int(context.node_config['partition-id']) % pool)
  module, loss = torch_models.build(workload)
  module.load_state_dict(message.content['arrays'].to_torch_state_dict())
  optimizer = torch.optim.SGD(module.parameters(), lr=workload.rate)
  for _ in range(workload.epochs):
    for batch in torch.split(torch.randperm(len(x)), workload.batch_size):
      optimizer.zero_grad()
      loss(module(x[batch]), y[batch]).backward()
      optimizer.step()
  content = RecordDict(
    {
      'arrays': ArrayRecord(module.state_dict()),
      'metrics': MetricRecord({'num-examples': len(x)}),
    }
  )
  return Message(content=content, reply_to=message)


def main() -> None:
  """Does rounds until standard input closes."""
  workload = serving.workload()
  logging.getLogger('flwr').setLevel(logging.ERROR)
  strategy = _Timed(
    serving.requests(),
    fraction_train=workload.cohort / workload.population,
    fraction_evaluate=0.0,
    min_train_nodes=workload.cohort,
    min_available_nodes=workload.population,
  )
  server, client = ServerApp(), ClientApp()
  client.train()(_train)

  @server.main()
  def run(grid: Grid, context: Context) -> None:
    module, _ = torch_models.build(workload)
    try:
      strategy.start(grid, ArrayRecord(module.state_dict()), num_rounds=_ROUNDS)
    except _EndedError:
      sys.stdout.flush()

  run_simulation(
    server,
    client,
    num_supernodes=workload.population,
    backend_config={
      'client_resources': {'num_cpus': 1, 'num_gpus': 0.0},
      'init_args': {'num_cpus': len(os.sched_getaffinity(0)), 'log_to_driver': False},
    },
  )


if __name__ == '__main__':
  main()
