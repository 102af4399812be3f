"""How much longer rounds take with a population: who is there, how fast, for how long.

usage: python -m research.benchmarks.population [--clients=3400] [--repetitions=5]

Every client is there half of the day and has a speed of its own; a round draws 10 of those that are
there and closes at a deadline, by which all have finished. The model is a 2NN (784-200-200-10),
whose rounds are short; each client has 100 examples of random pixels. Runs with and without take
turns; the medians of a round, from one end to the next, are compared.
"""

import itertools
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, tensorflow_start

_COHORT, _EXAMPLES, _POOL = 10, 100, 100
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer(
  'clients', 3400, 'Clients, as in EMNIST.', lower_bound=_POOL, flag_values=_FLAGS
)
absl_flags.DEFINE_integer('rounds', 100, 'Rounds of a run.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'repetitions', 5, 'Measured runs of each kind.', lower_bound=1, flag_values=_FLAGS
)


@command.entry('population')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  if command.parse(_FLAGS, __doc__, arguments) is None:
    return command.DONE
  tensorflow_start.quietly()
  import tff_adaptive
  from tff_adaptive_tasks.models import layers

  tff_adaptive.set_graph_context()
  plain, populated = (
    1000 * seconds for seconds in _measure(layers.perceptron(0, (784, 200, 200, 10)))
  )
  lines = [
    '| ms a round | with a population | ratio |',
    '|---|---|---|',
    f'| {plain:.2f} | {populated:.2f} | {populated / plain:.3f} |',
  ]
  command.show('\n'.join(lines) + '\n')
  return command.DONE


def _measure(model: Any) -> tuple[float, float]:
  """Median seconds of a round without and with a population."""
  import numpy as np

  from tff_adaptive import algorithms, costs, population, registry, training
  from tff_adaptive.client import batching
  from tff_adaptive_tasks import task

  class Clock(training.Callback):
    """Notes when rounds end."""

    def __init__(self) -> None:
      self.ends: list[float] = []

    def round_end(self, row: Any) -> None:
      del row
      self.ends.append(time.perf_counter())

  generator = np.random.default_rng(0)
  shape = (_EXAMPLES, *model.input_spec['x'].shape[1:])
  pool = [
    (generator.random(shape, np.float32), generator.integers(0, 10, _EXAMPLES).astype(np.int32))
    for _ in range(_POOL)
  ]
  clients = task.InMemoryClientData({f'{c:05d}': pool[c % _POOL] for c in range(_FLAGS.clients)})
  process = algorithms.build(
    'fed_avg', model, client_learning_rate=0.01, batching=batching.Batching(20)
  )
  there = population.Population(
    population.Diurnal(period=24, unit='hours'),
    population.Speed(seconds_per_step=1.0, speed_sigma=0.5, bandwidth_sigma=0.5),
    round_deadline=1e6,
  )
  seconds: list[list[float]] = [[], []]
  for repetition in range(1 + _FLAGS.repetitions):
    for times, chosen in zip(seconds, (None, there)):
      config = training.TrainingConfig(
        rounds=_FLAGS.rounds,
        clients_per_round=_COHORT,
        rounds_per_evaluation=_FLAGS.rounds,
        population=chosen,
        cost_model=costs.CostModel(registry.Counts(), model.num_parameters, 20),
      )
      clock = Clock()
      training.train(
        process,
        clients,
        lambda unused: {'loss': 0.0},
        config,
        callbacks=[clock],
        show_progress=False,
      )
      if repetition:  # The first traces.
        times += [end - begin for begin, end in itertools.pairwise(clock.ends)]
  return statistics.median(seconds[0]), statistics.median(seconds[1])


if __name__ == '__main__':
  sys.exit(main())
