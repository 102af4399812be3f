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

import flower_client
import serving
import torch_models
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

_ROUNDS = 10**6  # As many as are asked for.
_PULL_SECONDS = 0.005  # Between two looks for replies; by default 0.1, longer than a round takes.


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
    """Ends the round; RuntimeError if a client failed, which Flower would leave out in silence."""
    replies = list(replies)
    failed = [reply.error.reason for reply in replies if reply.has_error()]
    if failed:
      raise RuntimeError(f'{len(failed)} of {len(replies)} clients failed: {failed[0]}')
    found = super().aggregate_train(server_round, replies)
    serving.answer(seconds=time.perf_counter() - self._start)
    return found


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
  client.train()(functools.partial(flower_client.train, workload.name))

  @server.main()
  def run(grid: Grid, context: Context) -> None:
    module, _ = torch_models.build(workload)
    grid.pull_interval = _PULL_SECONDS
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
