"""Trains pfl-research's CIFAR-10 setting in this toolkit and in pfl-research, rounds in turn.

usage: python -m research.experiments.beside_pfl --data_dir=DIR [--flag=value ...]

IID clients of 50 images, 50 a round, batches of 10, one epoch at rate 0.1, plain averaging; their
CNN, with dropout. Both train on the same cohorts; initial weights and dropout differ. Ends after
--rounds, or with the round in which --minutes of training have passed. Writes RESULTS.csv, the
seconds of each round and the accuracy on all test images where it was measured, at each of these
measurements, and at the end, also of Ctrl-C, RESULTS.md and RESULTS.png. pfl-research is in an
environment of its own: sh scripts/env/setup_peers.sh pfl.

  python -m research.experiments.beside_pfl --data_dir=DIR --minutes=60
  python -m research.experiments.beside_pfl --data_dir=DIR --rounds=20 --rounds_per_evaluation=10
"""

import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from research.benchmarks import children, host, peer_environments, workloads
from scripts.cli import command, signals
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import style, tables

_WORKLOAD = 'cifar10_iid'
_VARIANTS = {'ours_graph': 'tff-adaptive', 'pfl': 'pfl-research'}
_NAMES = list(_VARIANTS.values())
_FILES = ['cifar10.npz', 'cifar10_lossless.npz']
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string('data_dir', None, f'Folder with one of {_FILES}.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 1500, 'Rounds at most.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_float('minutes', 60.0, 'Of training of both together.', flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'rounds_per_evaluation', 50, 'None of them counts as training.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_integer('seed', 0, "Of the clients' images.", lower_bound=0, flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'results', 'results/beside_pfl', 'Where to write: RESULTS.csv, .md, .png.', flag_values=_FLAGS
)


@command.entry('beside_pfl.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a process failed, 2 for bad input, 128 + signal if ended."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  if not _FLAGS.data_dir:
    raise ValueError('--data_dir is needed: a folder with cifar10.npz.')
  if not _FLAGS.minutes > 0:
    raise ValueError(f'--minutes={_FLAGS.minutes:g}: give more than 0.')
  command.check_output('results', _FLAGS.results)
  missing = peer_environments.PEERS['pfl'].missing(_WORKLOAD)
  if missing:
    raise ValueError(f'pfl-research cannot run here: {missing}')
  before = host.state_now()
  rows: list[dict[str, Any]] = []
  failure = ''
  with tempfile.TemporaryDirectory() as folder, signals.StopGuard(_announce) as stop:
    source = _write_images(folder)
    try:
      _train(folder, rows, stop)
    except RuntimeError as error:  # A process has ended; Ctrl-C reaches those too.
      failure = '' if stop.requested else str(error)
  written = 'nothing is written'
  if rows:
    is_cut = stop.requested and len(rows) < _FLAGS.rounds
    _write(rows, source, before, 'stopped' if is_cut else 'a process ended' if failure else '')
    written = f'{_FLAGS.results}.csv, .md and .png are written, of {len(rows)} rounds'
  if failure:
    raise command.FailureError(f'{failure}; {written}.')
  command.show(f'{written}.\n')
  return stop.exit_code


def _announce(unused_line: str) -> None:
  command.say('Ending after this round; what was measured is written. Once more ends it at once.')


def _write_images(folder: str) -> str:
  """Writes the images in the order of the clients; returns what served them."""
  from tff_adaptive_tasks.data import image_arrays

  train, test, source = image_arrays.load(_FLAGS.data_dir, _FILES, 'cifar10', (32, 32, 3), 10)
  workload = workloads.WORKLOADS[_WORKLOAD]
  needed = workload.population * workload.examples
  if len(train.y) < needed:
    raise ValueError(f'{source} has {len(train.y)} training images; {needed} are needed.')
  order = np.random.default_rng(_FLAGS.seed).permutation(len(train.y))
  path = os.path.join(folder, str(workload.images))
  np.savez(path, x_train=train.x[order], y_train=train.y[order], x_test=test.x, y_test=test.y)
  return os.path.basename(source)


def _train(folder: str, rows: list[dict[str, Any]], stop: signals.StopGuard) -> None:
  """Does the rounds, and adds a row for each; RuntimeError if a process has ended."""
  running = {name: children.Child(_WORKLOAD, kind, folder) for kind, name in _VARIANTS.items()}
  passed = 0.0
  is_last = False
  try:
    while not is_last:
      row: dict[str, Any] = {'round': len(rows) + 1}
      row |= {f'seconds {name}': child.ask('round')['seconds'] for name, child in running.items()}
      passed += sum(row[f'seconds {name}'] for name in _NAMES)
      rows.append(row)
      is_last = len(rows) == _FLAGS.rounds or passed >= 60 * _FLAGS.minutes or stop.requested
      if row['round'] % _FLAGS.rounds_per_evaluation == 0 or is_last:
        # All at once: a process may end before both are measured.
        row |= {f'accuracy {n}': child.ask('accuracy')['accuracy'] for n, child in running.items()}
        _write_rows(rows)
        shown = ', '.join(f'{name} {value:.4g}' for name, value in row.items())
        command.show(f'{shown}; {passed / 60:.1f} min of training\n')
  finally:
    for child in running.values():
      child.end()


def _table(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
  columns = [f'{what} {name}' for name in _NAMES for what in ('seconds', 'accuracy')]
  return pd.DataFrame(rows, columns=['round', *columns]).set_index('round')


def _write_rows(rows: Sequence[dict[str, Any]]) -> None:
  atomic_files.write_text(f'{_FLAGS.results}.csv', _table(rows).to_csv())


def _write(rows: Sequence[dict[str, Any]], source: str, before: host.State, ended: str) -> None:
  """Writes RESULTS.csv, RESULTS.md and RESULTS.png."""
  _write_rows(rows)
  table = _table(rows)
  # The first round, in which programs are traced, is not among the medians.
  seconds = {name: table[f'seconds {name}'][1:] for name in _NAMES}
  spreads = {name: host.spread(found) for name, found in seconds.items()}
  text = report(table, source, host.between(before, host.state_now(), spreads)['not_quiet'])
  if ended:
    text += f'\nNot complete: {ended} after {len(rows)} of {_FLAGS.rounds} rounds.\n'
  atomic_files.write_text(f'{_FLAGS.results}.md', text)
  draw(f'{_FLAGS.results}.png', table)


def report(table: pd.DataFrame, source: str, not_quiet: Sequence[str]) -> str:
  """The text of RESULTS.md, of a row a round, the file of the images and what else ran."""
  seconds = [table[f'seconds {name}'] for name in _NAMES]
  medians = [(found[1:] if len(found) > 1 else found).median() for found in seconds]
  cells = [
    ['seconds a round, median', *(f'{median:.3f}' for median in medians)],
    [f'minutes for {len(table)} rounds', *(f'{found.sum() / 60:.1f}' for found in seconds)],
  ]
  accuracy = table[[f'accuracy {name}' for name in _NAMES]].dropna()
  for t, values in accuracy.iterrows():
    cells.append([f'accuracy after round {t}', *(f'{value:.4f}' for value in values)])
  version = peer_environments.PEERS['pfl'].version()
  text = f'# CIFAR-10 beside pfl-research\n\n{tables.markdown(["", *_NAMES], cells)}' + (
    f'\n{medians[1] / medians[0]:.2f} x as fast as pfl-research {version} (two processes of one'
    f' thread each), whose setting it is: 1000 clients of 50 images ({source}), 50 a round, batches'
    f' of 10, one epoch at rate 0.1. Rounds in turn on one machine of {os.cpu_count()} processors.'
    f' Seed {_FLAGS.seed}.\n'
  )
  return text + (f'\nThe machine was not quiet: {"; ".join(not_quiet)}.\n' if not_quiet else '')


def draw(path: str, table: pd.DataFrame) -> None:
  """Draws the accuracy by rounds and by minutes of training, as PNG."""
  figure, axes = style.figure(1, 2, width=4.2)
  lines: dict[str, Any] = {}
  for i, name in enumerate(_NAMES):
    accuracy = table[f'accuracy {name}'].dropna()
    minutes = table[f'seconds {name}'].cumsum()[accuracy.index] / 60
    for axis, x, label in zip(axes[0], (accuracy.index, minutes), ('round', 'minutes of training')):
      (lines[name],) = axis.plot(x, accuracy, **style.line(i))
      axis.set_xlabel(label)
      axis.set_ylabel('test accuracy')
      axis.grid(alpha=0.3)
  style.legend(figure, list(lines.values()), list(lines))
  style.write(figure, path)


if __name__ == '__main__':
  sys.exit(main())
