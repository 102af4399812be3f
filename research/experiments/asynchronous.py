"""Virtual seconds to a target accuracy: servers that wait for clients, and servers that do not.

usage: python -m research.experiments.asynchronous --data_dir=DIR [--flag=value ...]

50 clients train at a time. A synchronous server waits for all 50, or for the first 50 of 65
(over-selection); a buffered one takes a step after 1, 10 or 50 arrivals. The seconds of a local
step are log-normal over the clients with sigma 0, 1 or 2. A share of the server's rate is chosen
for each problem, method and server, with sigma = 1 and a seed that does not count. A run ends at
the target, or after --updates client updates. Writes RESULTS.csv, RESULTS.md and RESULTS.png; a row
of the CSV file is written when it is known, and the same command goes on.

  python -m research.experiments.asynchronous --data_dir=DIR
"""

import collections
import dataclasses
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.reports import style

from . import frame

# Title -> the task, its options, those of local training, the client rate, files: one is needed.
PROBLEMS: Mapping[str, Any] = {
  'EMNIST digits, 300 writers': (
    'emnist_cr',
    {'only_digits': True, 'model': '2nn'},
    {'batch_size': 20},
    0.1,
    ('emnist_all.sqlite',),
  ),
  'MNIST, alpha = 0.03': (
    'mnist_skewed',
    {'alpha': 0.03, 'validation': 'test'},
    {'batch_size': 45, 'fill_last': True},
    0.1,
    frame.MNIST,
  ),
}
METHODS = ('FedAvg', 'FedYogi', 'SCAFFOLD', 'FedDyn', 'AdaBest')
# Title -> clients of a server step, over-selection, whether the server is buffered.
SERVERS: Mapping[str, tuple[int, float, bool]] = {
  'synchronous': (50, 1.0, False),
  '50 of 65': (50, 1.3, False),
  'B = 50': (50, 1.0, True),
  'B = 10': (10, 1.0, True),
  'B = 1': (1, 1.0, True),
}
_CONCURRENCY = 50
_KEYS = ['stage', 'problem', 'method', 'server', 'sigma', 'share', 'seed']

_FLAGS = frame.flags('asynchronous')
for _name, _values in (
  ('problems', list(PROBLEMS)),
  ('sigmas', ['0', '1', '2']),
  ('shares', ['1', '0.3', '0.1']),
):
  absl_flags.DEFINE_list(_name, _values, 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('updates', 2500, 'Of clients.', lower_bound=50, flag_values=_FLAGS)
absl_flags.DEFINE_float('target', 0.88, 'Accuracy on the test data.', flag_values=_FLAGS)


class Bench:
  """A problem with its data, and the processes that train on it."""

  def __init__(self, problem: str, seed: int):
    import tff_adaptive_tasks as tasks
    from tff_adaptive import models

    name, options, self._local, self._rate, _ = PROBLEMS[problem]
    self._seed = seed
    self._task = tasks.load(name, data_dir=_FLAGS.data_dir, seed=seed, **options)
    if name == 'emnist_cr':  # Ink is 1, as in MNIST.
      parts = {c: self._task.train.load(c) for c in self._task.train.client_ids}
      inverted = {c: (1 - part['x'], part['y']) for c, part in parts.items()}
      held = self._task.validation
      self._task = dataclasses.replace(
        self._task,
        train=tasks.InMemoryClientData(inverted),
        validation=collections.OrderedDict(x=1 - held['x'], y=held['y']),
      )
    self._model = self._task.build_model(seed)
    evaluate = models.build_evaluation(self._model)
    self._evaluate = lambda weights: evaluate(weights, self._task.validation)
    self._processes: dict[Any, Any] = {}

  def run(self, method: str, server: str, sigma: float, share: float) -> dict[str, float]:
    """Trains to the target; returns what it took, the last accuracy and the mean staleness."""
    from tff_adaptive import costs, population, registry, runs, training

    size, over, is_buffered = SERVERS[server]
    speed = population.Speed(speed_sigma=sigma)
    rounds = _FLAGS.updates // size
    config = training.TrainingConfig(
      rounds=rounds,
      clients_per_round=size,
      seed=self._seed,
      rounds_per_evaluation=max(1, _CONCURRENCY // size),
      rounds_per_checkpoint=rounds,
      population=population.Population(speed=speed, over_select=over),
      asynchrony=_asynchrony(is_buffered),
      cost_model=costs.CostModel(
        registry.Counts(down=1, up=1),  # The same clock for all methods.
        self._model.num_parameters,
        self._local['batch_size'],
        self._local.get('epochs', 1),
      ),
      target=_FLAGS.target,
      stop_at_target=True,
    )
    key = method, is_buffered, share
    if key not in self._processes:
      self._processes[key] = self._build(*key)
    rows: list[Mapping[str, Any]] = []

    class Rows(training.Callback):
      def round_end(self, row: Mapping[str, Any]) -> None:
        rows.append(dict(row))

    try:
      result = training.train(
        self._processes[key],
        self._task.train,
        self._evaluate,
        config,
        callbacks=[Rows()],
        show_progress=False,
      )
    except runs.NonFiniteWeightsError:
      return {'seconds': np.inf, 'updates': np.inf, 'accuracy': np.nan, 'staleness': np.nan}
    reached = [v for k, v in result.summary['to_target'].items() if k != 'target' and v]
    never = {'round': np.inf, 'virtual_seconds': np.inf}
    first = min(reached, key=lambda one: one['round'], default=never)
    last = [row for row in rows if 'validation_accuracy' in row][-1]
    stale = [row['staleness_mean'] for row in rows if 'staleness_mean' in row]
    return {
      'seconds': first['virtual_seconds'],
      'updates': first['round'] * size,
      'accuracy': last.get('inference_accuracy', last['validation_accuracy']),
      'staleness': np.mean(stale or [0.0]),
    }

  def _build(self, method: str, is_buffered: bool, share: float) -> Any:
    from tff_adaptive import algorithms, client, corrections, optimizers

    clients = len(self._task.train.client_ids)
    build_options = {
      'SCAFFOLD': lambda: corrections.Scaffold(clients),
      'FedDyn': lambda: corrections.FedDyn(0.02, clients),
      'AdaBest': lambda: corrections.AdaBest(0.02, 0.8),
    }
    server = optimizers.build_sgdm(share)
    if method == 'FedYogi':
      server = optimizers.build_yogi(0.03 * share, tau=1e-3)
    return algorithms.build_drift_corrected(
      self._model,
      build_options.get(method, corrections.Correction)(),
      server,
      client_learning_rate=self._rate,
      training=client.ClientTraining(
        batching=client.Batching(**self._local),
        seed=self._seed,
      ),
      asynchrony=_asynchrony(is_buffered),
    )


def _asynchrony(is_buffered: bool) -> Any:
  """The settings of a buffered server; None for one that waits."""
  from tff_adaptive import asynchrony

  if is_buffered:
    return asynchrony.Buffered(_CONCURRENCY)
  return None


def train(path: str) -> None:
  """Trains what the CSV file lacks, and writes row after row."""
  rows = frame.read_rows(path)
  for problem in _FLAGS.problems:
    for seed in (_FLAGS.tuning_seed, *_FLAGS.seeds):
      bench: Bench | None = None
      is_tuning = seed == _FLAGS.tuning_seed
      stage = 'final'
      sigmas = list(map(float, _FLAGS.sigmas))
      if is_tuning:
        stage = 'tuning'
        sigmas = [1.0]
      for method, server, sigma in itertools.product(METHODS, SERVERS, sigmas):
        if is_tuning:
          shares = list(map(float, _FLAGS.shares))
        else:
          shares = [chosen(rows, problem, method, server)]
        for share in shares:
          row = dict(zip(_KEYS, (stage, problem, method, server, sigma, share, int(seed))))
          if any(row.items() <= other.items() for other in rows):
            continue
          bench = bench or Bench(problem, int(seed))
          row |= bench.run(method, server, sigma, share)
          rows.append(row)
          command.say(' '.join(f'{value}' for value in row.values()))
          frame.write_rows(path, rows)


def chosen(rows: Sequence[Mapping[str, Any]], problem: str, method: str, server: str) -> float:
  """The share of the server's rate that reached the target first, or came nearest to it."""
  asked = {'stage': 'tuning', 'problem': problem, 'method': method, 'server': server}
  tried = [row for row in rows if asked.items() <= row.items()]
  best = min(tried, key=lambda row: (row['seconds'], -np.nan_to_num(row['accuracy'], nan=-1.0)))
  return float(best['share'])


def report(table: pd.DataFrame) -> list[str]:
  """The parts of RESULTS.md: virtual seconds to the target, by problem."""
  parts = [_INTRODUCTION]
  final = table[table['stage'] == 'final']
  for problem, rows in final.groupby('problem', sort=False):
    cells = rows.groupby(['method', 'sigma', 'server'], sort=False)['seconds'].agg(_median)
    chosen_ones = rows.groupby(['method', 'server'], sort=False)['share'].first().unstack()
    chosen_ones.loc['mean staleness'] = rows.groupby('server')['staleness'].mean()
    servers = [server for server in SERVERS if server in chosen_ones]
    parts += [f'## {problem}\n', frame.table(cells.unstack(fill_value='')[servers])]
    parts.append("The shares of the server's rate that were chosen, and the mean staleness:\n")
    parts.append(frame.table(chosen_ones[servers].map('{:.2g}'.format)))
  command_line = f'experiments.asynchronous --updates={_FLAGS.updates} --target={_FLAGS.target:g}'
  seeds = f'seeds {", ".join(_FLAGS.seeds)}, rates chosen with seed {_FLAGS.tuning_seed}'
  return [*parts, frame.made_by(command_line, seeds)]


def _median(seconds: pd.Series) -> str:
  """The median of the seeds that reached the target, and how many did where not all."""
  reached = seconds[np.isfinite(seconds)]
  if len(reached):
    text = f'{reached.median():,.0f}'
  else:
    text = '-'
  if len(reached) == len(seconds):
    return text
  return f'{text} ({len(reached)}/{len(seconds)})'


_INTRODUCTION = frame.paragraph("""
  Virtual seconds until the test accuracy was first at the target: the median over the seeds that
  reached it; (k/n) says how many did where not all, a dash that none did. 50 clients train at a
  time; sigma is that of the log-normal seconds of a local step, 0.1 s in the median. Client rate
  0.1, one epoch, uniform weights, polynomial staleness; FedDyn's and AdaBest's mu 0.02, AdaBest's
  beta 0.8; Yogi's rate 0.03; EMNIST's pixels have ink 1. SCAFFOLD, FedDyn and AdaBest count by the
  better of the global model and the mean of the client models.
""")


def draw(path: str, table: pd.DataFrame) -> None:
  """Writes the figure: virtual seconds to the target by sigma, a line for each server."""
  final = table[table['stage'] == 'final']
  problems = [name for name in PROBLEMS if name in set(final['problem'])]
  picture, grid = style.figure(len(problems), len(METHODS), height=3 * len(problems))
  for (i, problem), (j, method) in itertools.product(enumerate(problems), enumerate(METHODS)):
    rows = final[(final['problem'] == problem) & (final['method'] == method)]
    for server in SERVERS:
      some = rows[rows['server'] == server]
      medians = some.groupby('sigma')['seconds'].median()  # inf where most did not reach it.
      grid[i][j].plot(medians.index, medians.to_numpy(), marker='o', markersize=3, label=server)
    grid[i][j].set_yscale('log')
    grid[i][j].set_title(f'{method}\n{problem}', fontsize=8)
    grid[i][j].set_xlabel('sigma', fontsize=8)
  grid[0][0].legend(fontsize=6, frameon=False)
  grid[0][0].set_ylabel('virtual seconds', fontsize=8)
  style.write(picture, path)


@command.entry('asynchronous.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  files = {name: PROBLEMS[name][-1] for name in _FLAGS.problems if name in PROBLEMS}
  frame.check(_FLAGS, {'problems': PROBLEMS}, files)
  command.check_output('results', _FLAGS.results)
  path = f'{_FLAGS.results}.csv'
  if not _FLAGS.report_only:
    from tff_adaptive import engine

    engine.set_graph_context()
    train(path)
  table = pd.read_csv(path)
  if not (table['stage'] == 'final').any():
    raise ValueError(f'{path} has no run that counts yet: the same command goes on.')
  draw(f'{_FLAGS.results}.png', table)
  frame.write(_FLAGS.results, report(table))
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
