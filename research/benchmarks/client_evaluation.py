"""How much longer it takes to evaluate a thousand clients one by one than their pooled examples.

usage: python -m research.benchmarks.client_evaluation [--clients=1000] [--repetitions=5]

The sizes are log-normal with a median of 20 examples; pixels and weights are random. The two take
turns, so that a change of the machine's speed meets both; the medians are compared.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, tensorflow_start

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('clients', 1000, 'Clients.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'repetitions', 5, 'Measured evaluations of each kind.', lower_bound=1, flag_values=_FLAGS
)


@command.entry('client_evaluation')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code."""
  if command.parse(_FLAGS, __doc__, arguments) is None:
    return command.DONE
  tensorflow_start.quietly()
  from tff_adaptive_tasks import emnist
  from tff_adaptive_tasks.models import layers

  models = {
    '2NN (784-200-200-10)': layers.perceptron(0, (784, 200, 200, 10)),
    'CNN of EMNIST': emnist.build_cnn(0),
  }
  lines = ['| model | pooled, s | by client, s | ratio |', '|---|---|---|---|']
  for name, model in models.items():
    pooled, by_client = _measure(model)
    lines.append(f'| {name} | {pooled:.3f} | {by_client:.3f} | {by_client / pooled:.2f} |')
  command.show('\n'.join(lines) + '\n')
  return command.DONE


def _measure(model: Any) -> tuple[float, float]:
  """Median seconds of the pooled evaluation and of that by client."""
  import numpy as np

  from tff_adaptive import models

  generator = np.random.default_rng(0)
  sizes = np.ceil(generator.lognormal(np.log(20), 0.6, _FLAGS.clients)).astype(int)
  shape = tuple(model.input_spec['x'].shape[1:])
  clients = [
    {
      'x': generator.random((n, *shape), np.float32),
      'y': generator.integers(0, 10, n).astype(np.int32),
    }
    for n in sizes
  ]
  whole = {name: np.concatenate([c[name] for c in clients]) for name in ('x', 'y')}
  weights = model.initial_weights[0]
  evaluate = models.build_evaluation(model)
  of_clients = models.build_client_evaluation(model)
  kinds: tuple[Callable[[], Any], ...] = (
    lambda: evaluate(weights, whole),
    lambda: of_clients([weights], clients),
  )
  seconds: list[list[float]] = [[], []]
  for repetition in range(1 + _FLAGS.repetitions):
    for times, run in zip(seconds, kinds):
      began = time.perf_counter()
      run()
      if repetition:  # The first traces.
        times.append(time.perf_counter() - began)
  return statistics.median(seconds[0]), statistics.median(seconds[1])


if __name__ == '__main__':
  sys.exit(main())
