"""Measures whether memory grows with the rounds: 100,000 clients, a process in NumPy.

    python -m research.faults.memory --rounds=10000
    python -m research.faults.memory --rounds=10000 --algorithm=ada_best

trains with client states on disk and a small cache, and writes the resident memory every tenth of
the rounds. It fails (exit code 1) if the end is more than 1 % above the second tenth, at which the
caches of SQLite and of the allocator are full. `--algorithm` trains a small model in the graph
engine instead: what TensorFlow and TFF keep is measured too.
"""

import argparse
import gc
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import psutil

from tests.helpers import fakes
from tff_adaptive import training


class ManyClients:
  """Clients with two examples each."""

  def __init__(self, number: int):
    self.client_ids = [f'{i:06d}' for i in range(number)]

  def num_examples(self, client_id: str) -> int:
    return 2

  def load(self, client_id: str) -> dict[str, np.ndarray]:
    return {'x': np.full((2, 3), int(client_id) % 7, np.float32), 'y': np.zeros(2, np.int32)}


class Meter(training.Callback):
  """Notes the resident memory every so many rounds."""

  def __init__(self, every: int):
    self.megabytes: list[float] = []
    self._every = every

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Looks every so many rounds."""
    if not row['round'] or row['round'] % self._every:
      return
    gc.collect()
    self.megabytes.append(psutil.Process().memory_info().rss / 1e6)
    sys.stdout.write(f'round {row["round"]}: {self.megabytes[-1]:.1f} MB\n')


def measure(rounds: int, clients: int, algorithm: str = '') -> list[float]:
  """Trains and returns the megabytes at each tenth of the rounds."""
  meter = Meter(max(1, rounds // 10))
  config = training.TrainingConfig(
    rounds=rounds,
    clients_per_round=10,
    rounds_per_evaluation=50,
    rounds_per_checkpoint=200,
    client_state_store='disk',
    client_state_cache_bytes=100_000,
  )
  process: Any = fakes.StatefulProcess()
  if algorithm:
    from tests.helpers import processes
    from tff_adaptive import engine

    engine.set_graph_context()
    process = processes.own(algorithm)
  with tempfile.TemporaryDirectory() as folder:
    training.train(
      process,
      ManyClients(clients),
      fakes.evaluate,
      config,
      output_dir=folder,
      callbacks=[meter],
      show_progress=False,
    )
  return meter.megabytes


def main() -> int:
  """Runs the command."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--rounds', type=int, default=10_000)
  parser.add_argument('--clients', type=int, default=100_000)
  parser.add_argument('--algorithm', default='', help='trained in the graph engine')
  given = parser.parse_args()
  megabytes = measure(given.rounds, given.clients, given.algorithm)
  growth = megabytes[-1] / megabytes[1] - 1
  sys.stdout.write(f'grown by {growth:.2%}\n')
  return int(growth > 0.01)


if __name__ == '__main__':
  sys.exit(main())
