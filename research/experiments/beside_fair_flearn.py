"""The program of "Fair Resource Allocation in Federated Learning" on Adult, beside `fairness`.

usage: python -m research.experiments.beside_fair_flearn --data_dir=DIR [--flag=value ...]

The trainers of Li et al. (ICLR 2020) for q-FFL and AFL run as they stand on the two clients of
`fairness`, from the same initial weights. Every round has all examples, so that nothing is drawn,
and the accuracies have to be equal. They are those of the model after the last round. The
program must be in .peers/fair_flearn, as `sh scripts/env/setup_peers.sh fair_flearn` makes it.
Writes RESULTS.csv, a row for each method and seed; rows that are there are not made again.
`fairness --report_only` takes it into its table.

  python -m research.experiments.beside_fair_flearn --data_dir=DIR --seeds=0,1,2
"""

import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import temporary_folders

from . import fairness, frame

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PEER = _ROOT / '.peers' / 'fair_flearn'
_Q_FFL, _AFL = 'qffedsgd', 'afl'
# The method's title in `fairness` -> the trainer and its hyperparameters. FedAvg is q-FFL, q = 0.
METHODS: Mapping[str, tuple[str, Mapping[str, float]]] = {
  'FedAvg (equal weights)': (_Q_FFL, {'q': 0.0}),
  'q-FedAvg (q = 0.1)': (_Q_FFL, {'q': 0.1}),
  'q-FedAvg (q = 1)': (_Q_FFL, {'q': 1.0}),
  'q-FedAvg (q = 2)': (_Q_FFL, {'q': 2.0}),
  'q-FedAvg (q = 5)': (_Q_FFL, {'q': 5.0}),
  'AFL (rate 0.1)': (_AFL, {'lambda_rate': 0.1}),
  'AFL (rate 0.001)': (_AFL, {'lambda_rate': 0.001}),
}

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string('data_dir', None, 'The folder with adult.npz.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'results', 'results/fairness/fair_flearn', 'Where to write: RESULTS.csv.', flag_values=_FLAGS
)
absl_flags.DEFINE_list('methods', list(METHODS), 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_list('seeds', ['0', '1', '2'], 'Of the initial weights.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 600, 'Of each method.', lower_bound=2, flag_values=_FLAGS)


def problem(parts: Mapping[str, Any], seed: int) -> dict[str, np.ndarray]:
  """Returns the examples and the initial weights as the program's file has them."""
  x, y, clients = parts['train']
  task = fairness.build_task('adult', parts, seed)
  kernel, bias = task.build_model(seed).initial_weights[0]
  values = {'x_train': x, 'y_train': y, 'client_train': clients, 'kernel': kernel, 'bias': bias}
  values |= dict(zip(('x_test', 'y_test', 'client_test'), parts['test']))
  return {name: np.asarray(value) for name, value in values.items()}


def trained(title: str, of_seed: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
  """Runs a method's trainer; returns the weights after its last round."""
  trainer, values = METHODS[title]
  settings: dict[str, Any] = {'q': 0.0, 'lambda_rate': 0.0, **values}
  settings |= {'trainer': trainer, 'rounds': _FLAGS.rounds}
  settings['learning_rate'] = fairness.PROBLEMS['adult'][1]['client_learning_rate']
  with temporary_folders.folder('fair-flearn-') as folder:
    given, result = pathlib.Path(folder, 'problem.npz'), pathlib.Path(folder, 'weights.npz')
    content: Any = {**of_seed, **settings}
    np.savez(given, **content)
    program = [str(_PEER / 'bin' / 'python'), '-m', 'research.peers.fair_rounds']
    done = subprocess.run(
      [*program, str(_PEER / 'source'), str(given), str(result)],
      cwd=_ROOT,
      capture_output=True,  # It writes progress bars.
      text=True,
    )
    if done.returncode:
      last = done.stderr.strip().splitlines()[-1:]
      raise ValueError(f"Li et al.'s {title} ended with {done.returncode}: {''.join(last)}")
    with np.load(result) as weights:
      return weights['kernel'], weights['bias']


def accuracies(weights: tuple[np.ndarray, ...], parts: Mapping[str, Any]) -> dict[str, float]:
  """Returns the accuracies that `fairness` has: pooled, by client, of the worse of the two."""
  kernel, bias = weights
  x, y, clients = parts['test']
  is_right = (x.astype(np.float64) @ kernel + bias).argmax(axis=1) == y
  by_client = [is_right[clients == name].mean() for name in np.unique(clients)]
  return fairness.summary(float(is_right.mean()), by_client)


@command.entry('beside_fair_flearn.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  frame.check_values(_FLAGS, {'methods': METHODS})
  frame.check_seeds('seeds', _FLAGS.seeds)
  frame.check_files(_FLAGS.data_dir, {'adult': (fairness.PROBLEMS['adult'][0],)})
  if not (_PEER / 'bin' / 'python').exists():
    raise ValueError(
      "Li et al.'s program is not there: run sh scripts/env/setup_peers.sh fair_flearn"
    )
  command.check_output('results', _FLAGS.results)
  path = f'{_FLAGS.results}.csv'
  rows = frame.read_rows(path)
  parts = fairness.load('adult', _FLAGS.data_dir)
  for seed in map(int, _FLAGS.seeds):
    of_seed = problem(parts, seed)
    for title in _FLAGS.methods:
      key = {'method': title, 'seed': seed, 'rounds': _FLAGS.rounds}
      if any(key.items() <= row.items() for row in rows):
        continue
      rows.append(key | accuracies(trained(title, of_seed), parts))
      frame.write_rows(path, rows)
      command.say(f'{title}, seed {seed}: {_FLAGS.rounds} rounds')
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
