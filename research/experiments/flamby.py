"""Re-makes FLamby's results for heart disease and TCGA-BRCA, beside the published figures.

usage: python -m research.experiments.flamby --data_dir=DIR [--flag=value ...]

DIR holds FLamby's data and, in published/, its results, from which the settings come too: FedAvg,
FedProx, SCAFFOLD, FedAdam, FedYogi, FedAdagrad, Cyclic, each client alone and all data together.
All clients take K = 100 steps in each round, on batches that go on from round to round, weighted by
n_k. Writes RESULTS.md and RESULTS.csv: each client's test set and the pooled one. Takes minutes.

  python -m research.experiments.flamby --data_dir=DIR --results=results/flamby/flamby
"""

import glob
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame

_FLAGS = absl_flags.FlagValues()
for _name, _default, _words in (
  ('data_dir', None, "Folder with FLamby's files and published/."),
  ('results', 'results/flamby/flamby', 'Where to write: RESULTS.md, RESULTS.csv.'),
):
  absl_flags.DEFINE_string(_name, _default, _words, flag_values=_FLAGS)
absl_flags.DEFINE_list('seeds', ['42', '43', '44', '45', '46'], 'Seeds.', flag_values=_FLAGS)

_STEPS = 100  # K.
# Task -> the name of its published files, and the epochs of training on one set of data.
_TASKS = {'fed_heart': ('heart', 50), 'fed_tcga_brca': ('tcga_brca', 30)}
_NAMES = {'Scaffold': 'scaffold', 'FedProx': 'fed_prox'}  # Others are FedAvg's.
_NAMES |= {name: f'fed_{name[3:].lower()}' for name in ('FedAdam', 'FedYogi', 'FedAdagrad')}
_POOLED = 'Pooled Test'


def published(task: str) -> pd.DataFrame:
  """FLamby's results of a task: a row for each seed, method and test set, with its settings."""
  pattern = os.path.join(_FLAGS.data_dir or '', 'published', f'{_TASKS[task][0]}_seed*.csv')
  tables = [pd.read_csv(path) for path in sorted(glob.glob(pattern))]
  if not tables:
    raise ValueError(f"{pattern} is missing: give --data_dir, the folder with FLamby's results.")
  return pd.concat(tables).assign(Method=lambda t: t['Method'].str.removesuffix('100'))


class Benchmark:
  """A task with its data as arrays, and what trains and evaluates on them."""

  def __init__(self, name: str):
    import tff_adaptive_tasks as tasks

    self.name = name
    self.task = tasks.load(name, data_dir=_FLAGS.data_dir)
    assert self.task.test_clients is not None
    pooled = self.task
    if name == 'fed_heart':
      pooled = tasks.load(name, data_dir=_FLAGS.data_dir, standardized='pooled')
    ids = self.task.train.client_ids
    self.clients = [self.task.train.load(c) for c in ids]
    self.pooled = pooled.train.load_all()
    self.tests = {f'client_test_{i}': self.task.test_clients.load(c) for i, c in enumerate(ids)}
    self.tests[_POOLED] = self.task.validation
    self._processes: dict[str, Any] = {}

  def run(self, method: str, settings: Any, seed: int) -> dict[str, float]:
    """Trains by a method; returns its metric on each test set."""
    import tensorflow_federated as tff

    from tff_adaptive import client, models
    from tff_adaptive_tasks import catalog

    model = self.task.build_model(seed)
    rounds = catalog.sizes(self.name)['rounds']
    data = self.clients
    if method.startswith(('Local', 'Pooled')):
      if method.startswith('Pooled'):
        data = [self.pooled]
      else:
        data = [self.clients[int(method[-1])]]
      rounds = 1
      method = 'Local'  # One process does for all.
    elif method == 'Cyclic':  # Its code evaluates the first client's model, which gets no other.
      draws = np.random.default_rng(seed)
      data = self.clients[:1]
      passes = [draws.permutation(len(self.clients)) for _ in range(rounds)]
      rounds = np.count_nonzero(np.concatenate(passes)[:rounds] == 0)
    if method not in self._processes:  # Of all seeds: starts and clients' numbers differ.
      self._processes[method] = self._build(method, model, settings)
    process = self._processes[method]
    cohort = [client.client_arrays(d['x'], d['y'], 100 * seed + i) for i, d in enumerate(data)]
    start = tff.learning.models.ModelWeights(model.initial_weights[0], ())
    state = process.initialize()._replace(global_model_weights=start)
    states = None
    if hasattr(process, 'initial_client_state'):
      states = [process.initial_client_state] * len(cohort)
    for _ in range(rounds):
      if states is None:
        state = process.next(state, cohort).state
      else:
        state, states, _ = process.next(state, states, cohort)
    weights = state.global_model_weights.trainable
    evaluate = models.build_evaluation(model)
    return {name: evaluate(weights, test)[self.task.metric] for name, test in self.tests.items()}

  def _build(self, method: str, model: Any, settings: Any) -> Any:
    from tff_adaptive import algorithms, client, optimizers
    from tff_adaptive_tasks import catalog

    size = catalog.sizes(self.name)['batch_size']
    rate = float(settings['learning_rate'])
    training = client.ClientTraining(
      batching=client.Batching(size, local_steps=_STEPS, continue_batches=True)
    )
    options: dict[str, Any] = {}
    if method == 'FedProx':
      options['mu'] = float(settings['mu'])
    elif method == 'Scaffold':
      options['num_clients'] = len(self.clients)
    elif method in ('FedAdam', 'FedYogi', 'FedAdagrad'):
      names = ['tau', 'beta1', 'server_learning_rate']
    if method != 'FedAdagrad':
      names.append('beta2')
      options = {name: float(settings[name]) for name in names} | {'initial_v': 0.0}
    elif method == 'Local':  # PyTorch's Adam.
      adam = optimizers.build_adam(rate, beta2=0.999, tau=1e-8, bias_correction=True, initial_v=0)
      training = client.ClientTraining(adam, client.Batching(size, _TASKS[self.name][1]))
    build = getattr(algorithms, f'build_{_NAMES.get(method, "fed_avg")}')
    return build(
      model,
      client_learning_rate=rate,
      client_weighting='examples',
      training=training,
      **options,
    )


def compare(rows: pd.DataFrame) -> pd.DataFrame:
  """For each task, method and test set means, deviations, and whether they agree."""
  grouped = rows.groupby(['task', 'method', 'test'], sort=False)
  table = grouped[['here', 'published']].agg(['mean', 'std'])
  table.columns = ['_'.join(names) for names in table.columns]
  table['deviation'] = np.hypot(table['here_std'], table['published_std'])
  table['difference'] = table['here_mean'] - table['published_mean']
  table['is_within'] = table['difference'].abs() <= table['deviation'] + 1e-9
  return table.reset_index()


def report(rows: pd.DataFrame, seconds: float) -> list[str]:
  """The parts of RESULTS.md."""
  parts = [f'{_INTRODUCTION}\n']
  for task, table in compare(rows).groupby('task', sort=False):
    cells = table.apply(_cell, axis=1).set_axis([table['method'], table['test']]).unstack()
    lines = cells.loc[table['method'].unique(), table['test'].unique()]
    lines.columns = lines.columns.str.replace('_test_', ' ')
    count = f'{table["is_within"].sum()} of {len(table)} agree.\n'
    parts += [f'## {task}\n', frame.table(lines), count]
  runs = rows.groupby(['task', 'method', 'seed']).ngroups
  what = f'{runs} runs, seeds {", ".join(_FLAGS.seeds)}, {seconds / runs:.1f} seconds a run'
  command_line = 'experiments.flamby --data_dir=DIR'
  return [*parts, frame.made_by(command_line, f'{what}, tracing included')]


def _cell(row: Any) -> str:
  here = f'{row["here_mean"]:.3f} ± {row["here_std"]:.3f}'
  there = f'{row["published_mean"]:.3f} ± {row["published_std"]:.3f}'
  mark = '' if row['is_within'] else ' **differs**'
  return f'{here} ({there}){mark}'


_INTRODUCTION = frame.paragraph("""
  Accuracy (fed_heart) and concordance index (fed_tcga_brca), mean and standard deviation of the
  seeds: here, and in brackets as FLamby published it. The seeds are the same numbers but draw other
  starts and batches. A marked cell differs by more than the root of the sum of both variances;
  with five seeds each, that happens to one cell in twenty where nothing differs but chance
  (Student's t of 8 degrees of freedom beyond 2.24). Cyclic is one client alone, as in its code.
""")


@command.entry('flamby.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.check_output('results', _FLAGS.results)
  tables = {task: published(task) for task in _TASKS}
  from tff_adaptive import engine

  engine.set_graph_context()
  begun = time.monotonic()
  rows = []
  for task, table in tables.items():
    benchmark = Benchmark(task)
    for (method, seed), settings_rows in table.groupby(['Method', 'seed'], sort=False):
      if str(seed) in _FLAGS.seeds:
        scores = benchmark.run(method, settings_rows.iloc[0], int(seed))
        for test, value in zip(settings_rows['Test'], settings_rows['Metric']):
          rows.append((task, method, test, seed, scores[test], value))
        command.say(f'{task} {method} {seed}: {scores[_POOLED]:.4f}')
  names = ['task', 'method', 'test', 'seed', 'here', 'published']
  both = pd.DataFrame(rows, columns=names).sort_values('seed', kind='stable')
  frame.write_rows(f'{_FLAGS.results}.csv', both)
  frame.write(_FLAGS.results, report(both, time.monotonic() - begun))
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
