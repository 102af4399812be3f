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

import itertools
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.reports import style

from . import frame

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('rounds', 200, 'Rounds.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('epochs', 20, 'Epochs.', lower_bound=2, flag_values=_FLAGS)
absl_flags.DEFINE_integer('every', 1, 'Rounds to an evaluation.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 1, 'Of everything.', lower_bound=0, flag_values=_FLAGS)
absl_flags.DEFINE_string('results', 'results/synthetic', 'Where to write.', flag_values=_FLAGS)

_BATCH = 10
_RATE = 0.01
_COHORT = 10
_MU = 1.0
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


def curve(process: Any, task: Any, share: float, keeps: bool) -> list[dict[str, Any]]:
  """Rows: round, training loss of the global model over all clients, accuracy on test data."""
  from tff_adaptive import models

  data = [task.train.load(c) for c in task.train.client_ids]
  evaluate = models.build_evaluation(task.build_model(_FLAGS.seed))
  every = task.train.load_all()
  state = process.initialize()
  rows = []
  for number in range(_FLAGS.rounds + 1):
    if number % _FLAGS.every == 0 or number == _FLAGS.rounds:
      weights = state.global_model_weights.trainable
      loss = evaluate(weights, every)['loss']
      held = evaluate(weights, task.validation)
      rows.append({'round': number, 'loss': loss, 'accuracy': held['accuracy']})
    if number < _FLAGS.rounds:
      state = process.next(state, cohort(data, number, share, keeps)).state
  return rows


def draw(path: str, table: pd.DataFrame) -> None:
  """Writes the figure: data sets side by side, shares of stragglers below each other."""
  figure, axes = style.figure(len(_STRAGGLERS), len(_DATA), 3.25, 2.7)
  for (data, share, method), rows in table.groupby(['data', 'stragglers', 'method']):
    one = axes[_STRAGGLERS.index(share)][list(_DATA).index(data)]
    one.plot(rows['round'], rows['loss'], color=_METHODS[method], label=method, linewidth=1.3)
    one.set_title(f'{data}, {share:.0%} stragglers', fontsize=10)
    one.grid(alpha=0.25, linewidth=0.6)
  for one in axes[:, 0]:
    one.set_ylabel('training loss')
  for one in axes[-1]:
    one.set_xlabel('round')
  axes[-1][0].legend(fontsize=8, frameon=False)
  style.write(figure, path)


def report(table: pd.DataFrame, seconds: float) -> list[str]:
  """The parts of RESULTS.md: loss and accuracy, means of the last tenth of the rounds."""
  late = table[table['round'] > 0.9 * _FLAGS.rounds]
  means = late.groupby(['data', 'stragglers', 'method'], sort=False)[['loss', 'accuracy']].mean()
  texts = means['loss'].map('{:.3f}'.format) + ' / ' + means['accuracy'].map('{:.3f}'.format)
  lines = texts.unstack().rename(index='{:.0%}'.format, level='stragglers')
  given = ' '.join(f'--{name}={_FLAGS[name].value}' for name in ('rounds', 'epochs', 'every'))
  what = f'seed {_FLAGS.seed}, {seconds / 60:.0f} minutes'
  made_by = frame.made_by(f'experiments.synthetic {given}', what)
  return [_INTRODUCTION, frame.table(lines[list(_METHODS)]), made_by]


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
  average = algorithms.build_fed_avg(model, training=training, **options)
  proximal = algorithms.build_fed_prox(model, mu=_MU, training=training, **options)
  processes = dict(zip(_METHODS, (average, average, proximal)))
  path = f'{_FLAGS.results}.csv'
  begun = time.monotonic()
  rows = frame.read_rows(path)
  for data, share, method in itertools.product(_DATA, _STRAGGLERS, _METHODS):
    key = {'data': data, 'stragglers': share, 'method': method}
    if any(key.items() <= row.items() for row in rows):
      continue
    if method == 'FedProx, mu = 0' and not share:
      plain = key | {'method': 'FedAvg'}
      rows += [row | key for row in rows if plain.items() <= row.items()]
    else:
      task = tasks.load('synthetic', seed=_FLAGS.seed, **_DATA[data])
      rows += [key | row for row in curve(processes[method], task, share, method != 'FedAvg')]
    frame.write_rows(path, rows)
    command.say(f'{data}, {share:.0%} stragglers, {method}: loss {rows[-1]["loss"]:.4f}')
  table = pd.DataFrame(rows)
  draw(f'{_FLAGS.results}.png', table)
  frame.write(_FLAGS.results, report(table, time.monotonic() - begun))
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
