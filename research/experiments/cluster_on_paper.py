"""What a cluster of so many workers would give, by bytes and seconds that were measured.

usage: python -m research.experiments.cluster_on_paper [--seed=0]

Prints a table for EMNIST's CNN and for a model of 100 million parameters. Clients are divided into
subrounds as in a round; workers take the costliest first. Nothing is trained, and no TensorFlow
is loaded. What was measured, and what is assumed, stands at `Machine` and `Work`.
"""

import dataclasses
import heapq
import math
import random
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.engine.cluster import schedule

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('seed', 0, "Seeds the clients' sizes.", lower_bound=0, flag_values=_FLAGS)
_WORKERS = (1, 8, 64, 512)


@dataclasses.dataclass(frozen=True)
class Machine:
  """What a node and the network do.

  Attributes:
    network: Bytes a second of a node's link, each way; assumed: 10 Gbit/s.
    storage: Bytes a second that shared storage gives all nodes together; assumed.
    memory: Bytes a second of a sum of two arrays in memory; measured on one core.
    call_seconds: The trainer's time for a call, submitted and answered; measured: some 10 ms a
      round of four subrounds.
    client_seconds: The trainer's time for a client: drawing, key, pickling; estimated.
    reference_bytes: What travels of a client; estimated.
  """

  network: float = 1.2e9
  storage: float = 5e9
  memory: float = 2e9
  call_seconds: float = 2e-3
  client_seconds: float = 5e-5
  reference_bytes: float = 200.0


@dataclasses.dataclass(frozen=True)
class Work:
  """What a round is.

  Attributes:
    name: For the table.
    parameters: Of the model, of four bytes.
    clients: Of a round.
    example_seconds: A worker's time for an example, forwards and backwards.
    example_bytes: Of an example in storage.
    is_stateful: Whether clients keep a state as large as the model.
  """

  name: str
  parameters: int
  clients: int
  example_seconds: float
  example_bytes: float
  is_stateful: bool = False


# 0.06 CPU seconds for 100 examples, by W1; a worker of four cores.
CNN = Work("EMNIST's CNN", 1_206_590, 10_000, 0.06 / 100 / 4, 3136)
# Sentences of 64 tokens, 6 operations a parameter and token, on a GPU that does 20 Tflop/s.
LARGE = Work('100 million parameters', 10**8, 1_000, 64 * 6e8 / 2e13, 256)


@dataclasses.dataclass(frozen=True)
class Estimate:
  """A round's seconds by part.

  Attributes:
    broadcast: Until every node has the weights.
    training: Until the last subround is trained.
    merging: Of the sums, level by level.
    states: Client states from and to shared storage, beyond what training hides; and examples.
    trainer: Calls, keys, the last sum and the server's step, during which workers wait.
  """

  broadcast: float
  training: float
  merging: float
  states: float
  trainer: float

  @property
  def total(self) -> float:
    """The round's seconds."""
    return sum(dataclasses.astuple(self))

  @property
  def narrow_place(self) -> str:
    """The part that takes longest."""
    parts = dataclasses.asdict(self)
    return max(parts, key=lambda name: parts[name])


def estimate(work: Work, workers: int, sizes: Sequence[int], machine: Machine) -> Estimate:
  """A round on so many workers, one a node.

  Args:
    work: What is trained.
    workers: How many.
    sizes: The clients' examples.
    machine: What nodes do.

  Returns:
    The estimate for one, two or three subrounds a worker, whichever is best.
  """
  found = (_estimate(work, workers, n * workers, sizes, machine) for n in (1, 2, 3))
  return min(found, key=lambda one: one.total)


def _estimate(
  work: Work, workers: int, subrounds: int, sizes: Sequence[int], machine: Machine
) -> Estimate:
  parts = schedule.divide(sizes, subrounds)
  model = 4.0 * work.parameters
  costs = sorted((sum(sizes[i] for i in part) for part in parts), reverse=True)
  # A node that has the weights gives them to another one: their number doubles.
  hops = math.ceil(math.log2(workers + 1)) if workers > 1 else 0
  levels = math.ceil(math.log2(len(parts))) if len(parts) > 1 else 0
  moved = work.example_bytes * sum(sizes)
  if work.is_stateful:
    moved += 2 * model * len(sizes)
  trained = makespan(costs, workers) * work.example_seconds
  link = moved / workers / machine.network
  calls = 2 * len(parts) - 1
  return Estimate(
    broadcast=hops * model / machine.network,
    training=trained,
    merging=levels * (min(workers - 1, 1) * model / machine.network + 2 * model / machine.memory),
    states=max(0.0, max(moved / machine.storage, link) - trained),
    trainer=calls * machine.call_seconds
    + len(sizes) * (machine.client_seconds + machine.reference_bytes / machine.network)
    + min(workers - 1, 1) * model / machine.network
    + 10 * model / machine.memory,
  )


def makespan(costs: Sequence[float], workers: int) -> float:
  """When the last of some calls ends, if idle workers take the next one.

  Args:
    costs: Of the calls, in the order in which they are begun.
    workers: How many.
  """
  busy = [0.0] * workers
  for cost in costs:
    heapq.heapreplace(busy, busy[0] + cost)
  return max(busy)


def client_sizes(clients: int, seed: int) -> list[int]:
  """Log-normal sizes from 20 to 400 with a mean of some 120."""
  rng = random.Random(seed)
  return [int(min(max(rng.lognormvariate(math.log(110), 0.5), 20), 400)) for _ in range(clients)]


def table(seed: int) -> str:
  """The table, as Markdown."""
  lines = [
    '| model, clients a round | workers | s a round | clients/s | of ideal | longest part |',
    '|---|---|---|---|---|---|',
  ]
  for plain in (CNN, LARGE):
    for work in (plain, dataclasses.replace(plain, is_stateful=True)):
      sizes = client_sizes(work.clients, seed)
      ideal = sum(sizes) * work.example_seconds
      for workers in _WORKERS:
        found = estimate(work, workers, sizes, Machine())
        state = ', with client states' if work.is_stateful else ''
        lines.append(
          f'| {work.name}, {work.clients:,}{state} | {workers} | {found.total:.2f} |'
          f' {len(sizes) / found.total:,.0f} | {ideal / workers / found.total:.0%} |'
          f' {found.narrow_place} {max(dataclasses.astuple(found)):.2f} s |'
        )
  return '\n'.join(lines) + '\n'


@command.entry('cluster_on_paper.py', 'interrupted.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.show(table(_FLAGS.seed))
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
