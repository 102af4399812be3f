"""Re-makes the first figure of the FedProx paper on synthetic(alpha, beta).

usage: python -m research.experiments.synthetic [--flag=value ...]

"Federated Optimization in Heterogeneous Networks" (Li et al., 2020), figure 1: the training loss by
round with 0, 50 and 90 % stragglers. FedAvg drops them; FedProx, with mu = 0 and mu = 1, keeps what
they did: between 1 and 19 of 20 epochs, drawn anew in each round, the steps of
`Batching(step_limits=True)`. 10 of 30 clients a round, batches of 10, rate 0.01, weights n_k, as in
the published code; all methods have the same clients and stragglers. Writes RESULTS.md, RESULTS.csv
and RESULTS.png; a row of the CSV file is written when it is known, and the same command goes on.

  python -m research.experiments.synthetic --results=results/synthetic
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import report as report_lib, style

from . import frame

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('rounds', 200, 'Rounds.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('epochs', 20, 'Epochs.', lower_bound=2, flag_values=_FLAGS)
absl_flags.DEFINE_integer('every', 1, 'Rounds to an evaluation.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 1, 'Of everything.', lower_bound=0, flag_values=_FLAGS)
absl_flags.DEFINE_string('results', 'results/synthetic', 'Where to write.', flag_values=_FLAGS)

_BATCH, _RATE, _COHORT, _MU = 10, 0.01, 10, 1.0
_DATA: dict[str, dict[str, Any]] = {
  'IID': {'iid': True},
  'synthetic(0, 0)': {'alpha': 0, 'beta': 0},
  'synthetic(0.5, 0.5)': {'alpha': 0.5, 'beta': 0.5},
  'synthetic(1, 1)': {'alpha': 1, 'beta': 1},
}
_STRAGGLERS = (0.0, 0.5, 0.9)
_METHODS = {'FedAvg': '#222222', 'FedProx, mu = 0': '#E69F00', 'FedProx, mu = 1': '#0072B2'}


def cohort(data: Sequence[Any], number: int, share: float, keeps: bool) -> list[Any]:
  """The clients of a round, with the steps that each takes; stragglers only if it `keeps` them."""
  from tff_adaptive import client

  draws = np.random.default_rng([_FLAGS.seed, 33, number])
  drawn = draws.permutation(len(data))[:_COHORT]
  epochs = draws.integers(1, _FLAGS.epochs, _COHORT)
  epochs[round(_COHORT * share) :] = _FLAGS.epochs  # The first ones drawn straggle.
  return [
    client.client_arrays(data[i]['x'], data[i]['y'], int(i), e * -(-len(data[i]['y']) // _BATCH))
    for i, e in zip(drawn, epochs.tolist())
    if keeps or e == _FLAGS.epochs
  ]


def curve(process: Any, task: Any, share: float, keeps: bool) -> list[tuple[int, float, float]]:
  """Round, training loss of the global model over all clients, accuracy on the test data."""
  from tff_adaptive import models

  data = [task.train.load(c) for c in task.train.client_ids]
  evaluate, every = models.build_evaluation(task.build_model(_FLAGS.seed)), task.train.load_all()
  state, found = process.initialize(), []
  for number in range(_FLAGS.rounds + 1):
    if number % _FLAGS.every == 0 or number == _FLAGS.rounds:
      weights = state.global_model_weights.trainable
      accuracy = evaluate(weights, task.validation)['accuracy']
      found.append((number, evaluate(weights, every)['loss'], accuracy))
    if number < _FLAGS.rounds:
      state = process.next(state, cohort(data, number, share, keeps)).state
  return found


def draw(path: str, table: pd.DataFrame) -> None:
  """Writes the figure: data sets side by side, shares of stragglers below each other."""
  figure, axes = style.figure(len(_STRAGGLERS), len(_DATA), 3.25, 2.7)
  for (data, share, method), own in table.groupby(['data', 'stragglers', 'method']):
    one = axes[_STRAGGLERS.index(share)][list(_DATA).index(data)]
    one.plot(own['round'], own['loss'], color=_METHODS[method], label=method, linewidth=1.3)
    one.set_title(f'{data}, {share:.0%} stragglers', fontsize=10)
    one.grid(alpha=0.25, linewidth=0.6)
  for one in axes[:, 0]:
    one.set_ylabel('training loss')
  for one in axes[-1]:
    one.set_xlabel('round')
  axes[-1][0].legend(fontsize=8, frameon=False)
  style.write(figure, path)


def report(table: pd.DataFrame, seconds: float) -> str:
  """The text of RESULTS.md: loss and accuracy, means of the last tenth of the rounds."""
  late = table[table['round'] > 0.9 * _FLAGS.rounds]
  means = late.groupby(['data', 'stragglers', 'method'], sort=False)[['loss', 'accuracy']].mean()
  lines = []
  for (data, share), own in means.groupby(level=[0, 1], sort=False):
    cells = own.droplevel([0, 1])
    values = [cells.loc[m] for m in _METHODS if m in cells.index]
    shown = [f'{v["loss"]:.3f} / {v["accuracy"]:.3f}' for v in values]
    lines.append([data, f'{share:.0%}', *shown])
  text = report_lib.Table(['data', 'stragglers', *_METHODS], lines).markdown()
  given = ' '.join(f'--{name}={_FLAGS[name].value}' for name in ('rounds', 'epochs', 'every'))
  what = f'seed {_FLAGS.seed}, {seconds / 60:.0f} minutes'
  made_by = frame.made_by(f'experiments.synthetic {given}', what)
  return f'{_INTRODUCTION}\n{text}\n{made_by}'


_INTRODUCTION = frame.paragraph("""
  Loss of the global model over all clients' training data / accuracy on their test data, means of
  the last tenth of the rounds. FedAvg drops stragglers, FedProx keeps their work; without
  stragglers FedProx with mu = 0 is FedAvg. The curves are in the figure and the CSV file.
""")


@command.entry('synthetic.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.check_output('results', _FLAGS.results)
  import tff_adaptive_tasks as tasks
  from tff_adaptive import algorithms, client, engine

  engine.set_graph_context()
  training = client.ClientTraining(
    batching=client.Batching(_BATCH, _FLAGS.epochs, step_limits=True), seed=_FLAGS.seed
  )
  model = tasks.load('synthetic').build_model(_FLAGS.seed)
  options: dict[str, Any] = {'client_learning_rate': _RATE, 'client_weighting': 'examples'}
  plain = algorithms.build_fed_avg(model, training=training, **options)
  proximal = algorithms.build_fed_prox(model, mu=_MU, training=training, **options)
  processes = dict(zip(_METHODS, (plain, plain, proximal)))
  path, begun = f'{_FLAGS.results}.csv', time.monotonic()
  names = ['data', 'stragglers', 'method', 'round', 'loss', 'accuracy']
  table = pd.read_csv(path) if os.path.exists(path) else pd.DataFrame(columns=names)
  for data, given in _DATA.items():
    task = tasks.load('synthetic', seed=_FLAGS.seed, **given)
    for share in _STRAGGLERS:
      for method, process in processes.items():
        keys = (table['data'] == data) & (table['stragglers'] == share)
        if (keys & (table['method'] == method)).any():
          continue
        if method == 'FedProx, mu = 0' and not share:
          found = [tuple(row[-3:]) for row in table[keys].itertuples(index=False)]  # FedAvg's.
        else:
          found = curve(process, task, share, method != 'FedAvg')
        rows = [(data, share, method, *values) for values in found]
        new = pd.DataFrame(rows, columns=names)
        table = pd.concat([table, new]) if len(table) else new
        atomic_files.write_text(path, table.to_csv(index=False, float_format='%.6g'))
        command.say(f'{data}, {share:.0%} stragglers, {method}: loss {found[-1][1]:.4f}')
  draw(f'{_FLAGS.results}.png', table)
  atomic_files.write_text(f'{_FLAGS.results}.md', report(table, time.monotonic() - begun))
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
