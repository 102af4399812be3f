"""Measures rounds of very many clients, in one process or on local Ray workers.

usage: python -m research.experiments.many_clients [--flag=value ...]

The clients are drawn from (seed, client) where they are used. Writes a line of JSON: clients a
second after the first round, processor time of this process and the workers, this one's memory,
bytes to and from the workers, and a digest of the final state, which must not depend on workers,
nor on how many of them are killed.

  # 10,000 clients a round, in one process and on two workers:
  python -m research.experiments.many_clients
  python -m research.experiments.many_clients --ray_workers=2
  # 1,000,000 clients with AdaBest's state, a worker killed in every fifth round:
  python -m research.experiments.many_clients --algorithm=ada_best --registered=1000000 \\
      --clients_per_round=2000 --rounds=50 --features=32 --hidden=48 --ray_workers=2 --kill_every=5
"""

import hashlib
import json
import os
import resource
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
from absl import flags as absl_flags

from scripts.cli import command, tensorflow_start
from tff_adaptive.training import callbacks

from ..benchmarks import drawn_clients

_FLAGS = absl_flags.FlagValues()
_BATCH_SIZE, _RATE, _SERVER_RATE = 20, 0.05, 0.01
for _name, _default, _help in (
  ('registered', 10_000, 'Clients that there are.'),
  ('clients_per_round', 10_000, 'Clients of a round.'),
  ('features', 784, 'Features of an example.'),
  ('hidden', 100, 'Width of the hidden layer.'),
  ('subrounds', 64, 'Parts of a cohort.'),
):
  absl_flags.DEFINE_integer(_name, _default, _help, lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'rounds', 4, 'Rounds; the first traces and is not measured.', lower_bound=2, flag_values=_FLAGS
)
for _name, _help in (
  ('seed', 'Seeds clients, weights and cohorts.'),
  ('ray_workers', 'Workers; 0: one process without Ray.'),
  ('kill_every', 'In every so many rounds a worker is killed; 0: never.'),
):
  absl_flags.DEFINE_integer(_name, 0, _help, lower_bound=0, flag_values=_FLAGS)
absl_flags.DEFINE_enum(
  'algorithm', 'fed_yogi', ['fed_yogi', 'ada_best'], 'Algorithm.', flag_values=_FLAGS
)
absl_flags.DEFINE_enum(
  'engine', 'subrounds', ['subrounds', 'graph'], 'Without Ray.', flag_values=_FLAGS
)


class Watch(callbacks.Callback):
  """Notes when rounds end and how much memory is used; kills workers."""

  def __init__(self, kill_every: int):
    self.ends: list[float] = []
    self.memory: list[float] = []
    self.processor_seconds: list[float] = []
    self.killed = 0
    self._kill_every = kill_every
    self._seconds: dict[psutil.Process, float] = {}

  def round_begin(self, number: int) -> None:
    """Has a worker killed in the middle of the round, if it is its turn."""
    if self._kill_every and number % self._kill_every == 0 and len(self.ends) > 2:
      timer = threading.Timer((self.ends[-1] - self.ends[-2]) / 2, self._kill)
      timer.daemon = True
      timer.start()

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Notes the time."""
    self.ends.append(time.perf_counter())
    self.memory.append(psutil.Process().memory_info().rss / 1e6)
    self._note(_processes())
    self.processor_seconds.append(sum(list(self._seconds.values())))

  def _note(self, processes: Sequence[psutil.Process]) -> None:
    """Notes the processor time of processes; what one that has ended took stays."""
    for process in processes:
      self._seconds[process] = max(self._seconds.get(process, 0.0), _processor_seconds(process))

  def _kill(self) -> None:
    for process in psutil.Process().children(recursive=True):
      if process.name().startswith('ray::') and 'train' in process.name():
        self._note([process])
        process.kill()
        self.killed += 1
        return


def _processes() -> list[psutil.Process]:
  """This process, and those that it has started."""
  return [psutil.Process(), *psutil.Process().children(recursive=True)]


def _processor_seconds(process: psutil.Process) -> float:
  """Of the trainer or a worker; Ray's own processes take theirs by the clock, not by the round."""
  try:
    if process.pid != os.getpid() and not process.name().startswith('ray::'):
      return 0.0
    times = process.cpu_times()
  except psutil.Error:  # It has ended.
    return 0.0
  return times.user + times.system


@command.entry('many_clients.py', 'interrupted; nothing was written.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  began = time.perf_counter()
  tensorflow_start.quietly()
  tensorflow_start.load()
  context = _set_context()
  clients = drawn_clients.DrawnClients(_FLAGS.registered, _FLAGS.features, _FLAGS.seed)
  watch = Watch(_FLAGS.kill_every)
  with tempfile.TemporaryDirectory() as folder:
    result = _train(clients, watch, folder, context)
    seconds = [b - a for a, b in zip(watch.ends[1:], watch.ends[2:])]  # The first round traces.
    counters = context.counters() if context else {}
    record = {
      'workers': _FLAGS.ray_workers,
      'clients_per_second': round(_FLAGS.clients_per_round / statistics.median(seconds), 1),
      'seconds_per_round': round(statistics.median(seconds), 3),
      'processor_seconds_per_round': round(
        (watch.processor_seconds[-1] - watch.processor_seconds[1]) / max(1, len(seconds)), 2
      ),
      'seconds_to_round_0': round(watch.ends[0] - began, 1),
      'trainer_mb': [round(watch.memory[1]), round(watch.memory[-1])],
      'trainer_peak_mb': round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
      'killed': watch.killed,
      **{name: round(value / _FLAGS.rounds, 2) for name, value in counters.items()},
      'digest': _digest(result.state),
    }
  if context:
    context.close()
  command.show(json.dumps(record) + '\n')
  return command.DONE


def _set_context() -> Any:
  """The engine; returns the Ray context, or None."""
  from tff_adaptive import engine

  engine.set_graph_context(parallel_clients=2)
  if _FLAGS.ray_workers:
    return engine.set_ray_context(
      'local', workers=_FLAGS.ray_workers, subrounds=max(_FLAGS.subrounds, _FLAGS.ray_workers)
    )
  if _FLAGS.engine == 'subrounds':
    engine.set_subround_context(_FLAGS.subrounds)
  return None


def _train(clients: Any, watch: Watch, folder: str, context: Any) -> Any:
  from tff_adaptive import algorithms, training
  from tff_adaptive.client import batching
  from tff_adaptive_tasks.models import layers

  options = {'server_learning_rate': _SERVER_RATE} if _FLAGS.algorithm == 'fed_yogi' else {}
  process = algorithms.build(
    _FLAGS.algorithm,
    layers.perceptron(_FLAGS.seed, [_FLAGS.features, _FLAGS.hidden, 10]),
    client_learning_rate=_RATE,
    batching=batching.Batching(_BATCH_SIZE, 1),
    **options,
  )
  config = training.TrainingConfig(
    rounds=_FLAGS.rounds,
    clients_per_round=_FLAGS.clients_per_round,
    seed=_FLAGS.seed,
    rounds_per_evaluation=_FLAGS.rounds,
    rounds_per_checkpoint=10,
    client_state_store='shards' if context else 'memory',
  )
  looking_on = [watch, *([training.RayCallback(context)] if context else [])]
  return training.train(
    process, clients, lambda weights: {}, config, output_dir=folder, callbacks=looking_on
  )


def _digest(state: Any) -> str:
  import numpy as np
  import tree

  total = hashlib.sha256()
  for leaf in tree.flatten(state):
    total.update(np.asarray(leaf).tobytes())
  return total.hexdigest()[:16]


if __name__ == '__main__':
  sys.exit(main())
