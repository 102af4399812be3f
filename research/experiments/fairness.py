"""Accuracy of the worst clients: q-FedAvg and AFL beside FedAvg, on Adult and on LEAF's writers.

usage: python -m research.experiments.fairness --data_dir=DIR [--flag=value ...]

- 'adult': two clients, people with a doctorate and all others, who predict an income above 50,000
  by logistic regression on the 99 indicators of eight columns. The settings are those of the code
  of "Fair Resource Allocation in Federated Learning" (Li et al., 2020): 600 rounds of one gradient
  on all examples of both clients, client rate 0.1.
- 'writers': 300 writers of FEMNIST with 62 classes, a perceptron with one hidden layer of 100, 20
  writers a round, one epoch in batches of 10. Each writer's test part is evaluated by itself.
A row of RESULTS.csv is written when it is known, and the same command goes on. Writes RESULTS.csv
and RESULTS.md.

  python -m research.experiments.fairness --data_dir=DIR --results=results/fairness/fairness
  python -m research.experiments.fairness --smoke --results=/tmp/fairness
"""

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame

# Problem -> its file; what it asks of `tff_adaptive.fit`.
PROBLEMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
  'adult': (
    'adult.npz',
    {'rounds': 600, 'batch_size': 40_000, 'client_learning_rate': 0.1, 'clients_per_round': 2},
  ),
  'writers': (
    'femnist_leaf.npz',
    {'rounds': 300, 'batch_size': 10, 'client_learning_rate': 0.1, 'clients_per_round': 20},
  ),
}
# Title -> the algorithm and its options. AFL counts on every client in each round.
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
  'FedAvg (weights n_k)': ('fed_avg', {'client_weighting': 'examples'}),
  'FedAvg (equal weights)': ('fed_avg', {}),
  'q-FedAvg (q = 0.1)': ('q_fed_avg', {'q': 0.1}),
  'q-FedAvg (q = 1)': ('q_fed_avg', {'q': 1.0}),
  'q-FedAvg (q = 2)': ('q_fed_avg', {'q': 2.0}),
  'q-FedAvg (q = 5)': ('q_fed_avg', {'q': 5.0}),
  'AFL (rate 0.1)': ('afl', {'lambda_rate': 0.1}),
  'AFL (rate 0.001)': ('afl', {'lambda_rate': 0.001}),
}
# What `beside_fair_flearn` writes beside RESULTS.csv.
PROGRAM = 'fair_flearn.csv'
DOCTORATE = 'Doctorate'
OTHERS = 'others'
_COLUMNS = (
  'workclass',
  'education',
  'marital-status',
  'occupation',
  'relationship',
  'race',
  'sex',
  'native-country',
)
_UNKNOWN = '?'
_KEYS = ('problem', 'method', 'seed')

_FLAGS = frame.flags('fairness')
for _name, _values in (('problems', list(PROBLEMS)), ('methods', list(METHODS))):
  absl_flags.DEFINE_list(_name, _values, 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_boolean('smoke', False, 'Seconds on made-up data.', flag_values=_FLAGS)


def indicators(data: Mapping[str, np.ndarray], part: str) -> np.ndarray:
  """Returns the indicators of the categories of Adult's columns, float32 [n, 99]; '?' has none."""
  columns = []
  for name in _COLUMNS:
    codes = data[f'{name}_{part}']
    for code, value in enumerate(data[f'{name}_values']):
      if value != _UNKNOWN:
        columns.append(codes == code)
  return np.stack(columns, axis=1).astype(np.float32)


def adult(data: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, ...]]:
  """Returns the inputs, targets and clients of Adult's two parts, 'train' and 'test'."""
  degrees = list(data['education_values'])
  parts: dict[str, tuple[np.ndarray, ...]] = {}
  for part in ('train', 'test'):
    has_doctorate = data[f'education_{part}'] == degrees.index(DOCTORATE)
    clients = np.where(has_doctorate, DOCTORATE, OTHERS)
    parts[part] = indicators(data, part), data[f'income_{part}'].astype(np.int64), clients
  return parts


def writers(data: Mapping[str, np.ndarray]) -> dict[str, tuple[np.ndarray, ...]]:
  """Returns the images, classes and writers of the two parts; ink is 1, as in MNIST."""
  parts: dict[str, tuple[np.ndarray, ...]] = {}
  for part in ('train', 'test'):
    images = 1 - data[f'x_{part}'].reshape(-1, 784).astype(np.float32) / 255
    clients = data['client_ids'][data[f'client_{part}']]
    parts[part] = images, data[f'y_{part}'].astype(np.int64), clients
  return parts


def _made_up() -> dict[str, tuple[np.ndarray, ...]]:
  """Returns a few examples of two clients whose labels differ, for --smoke."""
  generator = np.random.default_rng(0)
  x = generator.standard_normal((60, 5)).astype(np.float32)
  clients = np.where(np.arange(60) < 10, DOCTORATE, OTHERS)
  y = ((x[:, 0] > 0) ^ (clients == DOCTORATE)).astype(np.int64)
  return {'train': (x, y, clients), 'test': (x, y, clients)}


def load(problem: str, data_dir: str) -> dict[str, tuple[np.ndarray, ...]]:
  """Reads a problem's parts from its file in a folder."""
  with np.load(os.path.join(data_dir, PROBLEMS[problem][0])) as file:
    data = {name: file[name] for name in file.files}
  return {'adult': adult, 'writers': writers}[problem](data)


def build_task(problem: str, parts: Mapping[str, Any], seed: int) -> Any:
  """Returns a problem's task: the clients, the test examples and the model."""
  import tff_adaptive_tasks as tasks

  model = 'mlp'
  if problem == 'adult':
    model = 'logistic_regression'
  x, y, _ = parts['test']
  return tasks.from_arrays(*parts['train'], model=model, validation=(x, y), seed=seed, name=problem)


def summary(pooled: float, by_client: Sequence[float]) -> dict[str, float]:
  """Returns a row's accuracies: on all examples, and what the clients have."""
  values = np.sort(by_client)
  worst = values[: -(-len(values) // 10)]  # A tenth of the clients, rounded up.
  row = {
    'pooled': pooled,
    'mean': values.mean(),
    'deviation': values.std(),
    'worst_tenth': worst.mean(),
  }
  return {name: float(value) for name, value in row.items()}


def run(problem: str, parts: Mapping[str, Any], method: str, seed: int) -> dict[str, float]:
  """Trains a method; returns accuracies on test data: pooled, by client, of the worst tenth."""
  import tff_adaptive
  from tff_adaptive import models

  algorithm, options = METHODS[method]
  settings: dict[str, Any] = {'client_weighting': 'uniform', **PROBLEMS[problem][1], **options}
  if _FLAGS.smoke:
    settings |= {'rounds': 2, 'clients_per_round': 2}
  x, y, clients = parts['test']
  result = tff_adaptive.fit(
    build_task(problem, parts, seed),
    algorithm,
    seed=seed,
    server_optimizer='sgd',
    server_learning_rate=1.0,
    rounds_per_evaluation=settings['rounds'],
    quiet=True,
    **settings,
  )
  evaluate = models.build_evaluation(result.model)

  def accuracy(rows: np.ndarray) -> float:
    return evaluate(result.weights, {'x': x[rows], 'y': y[rows]})['accuracy']

  by_client = [accuracy(clients == name) for name in np.unique(clients)]
  return summary(accuracy(np.ones(len(y), bool)), by_client)


def train(path: str) -> None:
  """Trains what the CSV file lacks, and writes row after row."""
  known = frame.read_rows(path)
  for problem in _FLAGS.problems:
    parts = _made_up() if _FLAGS.smoke else load(problem, _FLAGS.data_dir)
    for seed, method in itertools.product(map(int, _FLAGS.seeds), _FLAGS.methods):
      key = dict(zip(_KEYS, (problem, method, seed)))
      if any(key.items() <= row.items() for row in known):
        continue
      row = key | run(problem, parts, method, seed)
      known.append(row)
      command.say(' '.join(f'{value}' for value in row.values()))
      frame.write_rows(path, known)


def report(table: pd.DataFrame) -> list[str]:
  """Returns the parts of RESULTS.md: accuracies by method."""
  titles = {
    'pooled': 'all test examples',
    'mean': 'mean of the clients',
    'deviation': 'deviation over the clients',
    'worst_tenth': 'worst tenth of the clients',
  }
  parts = [_INTRODUCTION]
  path = os.path.join(os.path.dirname(_FLAGS.results), PROGRAM)
  for problem, rows in table.groupby('problem', sort=False):
    named = rows.rename(columns=titles)
    cells = named.groupby('method', sort=False)[list(titles.values())].agg(frame.spread)
    parts += [f'## {problem}: accuracy in percent\n', frame.table(cells)]
    if problem == 'adult' and os.path.exists(path):
      program = pd.read_csv(path)
      # Rows after other numbers of rounds say nothing of these.
      program = program[program['rounds'] == PROBLEMS[problem][1]['rounds']]
      both = rows.merge(program, on=['method', 'seed'], suffixes=('', '_program'))
      if not both.empty:
        parts.append('\n' + _beside_program(both))
  flags = 'experiments.fairness'
  if _FLAGS.smoke:
    flags += ' --smoke'
  return [*parts, frame.made_by(flags, f'seeds {", ".join(_FLAGS.seeds)}')]


def _beside_program(both: pd.DataFrame) -> str:
  """Says how far the accuracies here are from those of Li et al.'s program at most."""
  columns = ['pooled', 'mean', 'deviation', 'worst_tenth']
  of_program = both[[f'{column}_program' for column in columns]]
  furthest = float(np.abs(both[columns].to_numpy() - of_program.to_numpy()).max())
  return frame.paragraph(f"""
    The trainers of Li et al.'s program, run from the same initial weights
    ([{PROGRAM}]({PROGRAM}), {len(both)} runs: {both['method'].nunique()} of these methods, seeds
    {', '.join(map(str, both['seed'].unique()))}), differ from these numbers by
    {100 * furthest:.4f} points at most. AFL's model is that of the last round there, too.""")


_INTRODUCTION = frame.paragraph("""
  Means and standard deviations over the seeds. On Adult the worst tenth is the client with the
  lower accuracy, one of two. h_i of q-FedAvg has a term that FedAvg does not have, so its steps are
  shorter, and it has not come as far after the same rounds. The rate of AFL is that of lambda.
""")


@command.entry('fairness.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  files: dict[str, Sequence[str]] = {}
  if _FLAGS.smoke:
    frame.shorten(_FLAGS, {'methods': list(METHODS)[-2:], 'problems': ['adult'], 'seeds': ['0']})
  else:
    files = {name: (PROBLEMS[name][0],) for name in _FLAGS.problems if name in PROBLEMS}
  frame.check(_FLAGS, {'problems': PROBLEMS, 'methods': METHODS}, files)
  table = frame.trained(_FLAGS, train)
  frame.write(_FLAGS.results, report(table))
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
