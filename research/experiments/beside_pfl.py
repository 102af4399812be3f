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
import statistics
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags as absl_flags

from scripts.cli import command, signals
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import style, tables

from ..benchmarks import children, host, peer_environments, workloads

_WORKLOAD = 'cifar10_iid'
_VARIANTS = {'ours_graph': 'tff-adaptive', 'pfl': 'pfl-research'}
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string(
  'data_dir',
  None,
  'Folder with cifar10.npz, cifar10_jpeg.npz or cifar10_lossless.npz.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer('rounds', 1500, 'Rounds at most.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_float(
  'minutes', 60.0, 'Minutes of training of both together at most.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'rounds_per_evaluation',
  50,
  'Rounds from one measurement of accuracy to the next; none of them counts as training.',
  lower_bound=1,
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer(
  'seed', 0, 'Which images a client has.', lower_bound=0, flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'results',
  'results/beside_pfl',
  'Where to write: RESULTS.csv, RESULTS.md and RESULTS.png.',
  flag_values=_FLAGS,
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
    ended = 'stopped' if is_cut else 'a process ended' if failure else ''
    _write(rows, source, before, ended)
    written = f'{_FLAGS.results}.csv, .md and .png are written, of {len(rows)} rounds'
  if failure:
    raise command.FailureError(f'{failure}; {written}.')
  command.show(f'{written}.\n')
  return stop.exit_code


def _announce(unused_line: str) -> None:
  command.say('Ending after this round; what was measured is written. Once more ends it at once.')


def _write(rows: Sequence[dict[str, Any]], source: str, before: host.State, ended: str) -> None:
  """Writes RESULTS.csv, RESULTS.md and RESULTS.png."""
  spreads = {
    name: host.spread([row[f'seconds {name}'] for row in rows[1:]]) for name in _VARIANTS.values()
  }
  quiet = host.between(before, host.state_now(), spreads)
  _write_rows(rows)
  text = report(rows, source, quiet['not_quiet'])
  if ended:
    text += f'\nNot complete: {ended} after {len(rows)} of {_FLAGS.rounds} rounds.\n'
  atomic_files.write_text(f'{_FLAGS.results}.md', text)
  draw(f'{_FLAGS.results}.png', rows)


def _write_rows(rows: Sequence[dict[str, Any]]) -> None:
  atomic_files.write_text(f'{_FLAGS.results}.csv', _csv(rows))


def _write_images(folder: str) -> str:
  """Writes the images in the order of the clients; returns what served them."""
  from tff_adaptive_tasks.data import image_arrays

  files = ['cifar10.npz', 'cifar10_jpeg.npz', 'cifar10_lossless.npz']
  train, test, source = image_arrays.load(_FLAGS.data_dir, files, 'cifar10', (32, 32, 3), 10)
  workload = workloads.WORKLOADS[_WORKLOAD]
  needed = workload.population * workload.examples
  if len(train.y) < needed:
    raise ValueError(f'{source} has {len(train.y)} training images; {needed} are needed.')
  order = np.random.default_rng(_FLAGS.seed).permutation(len(train.y))
  path = os.path.join(folder, str(workload.images))
  x, y = train.x[order], train.y[order]
  np.savez(path, x_train=x, y_train=y, x_test=test.x, y_test=test.y)
  return os.path.basename(source)


def _train(folder: str, rows: list[dict[str, Any]], stop: signals.StopGuard) -> None:
  """Does the rounds.

  Args:
    folder: That of the images.
    rows: Gets a row a round: its number, the seconds of each, the accuracy of each where it was
      measured.
    stop: Asks for the end.

  Raises:
    RuntimeError: If a process has ended; the rows of the rounds before are there.
  """
  running = {
    name: children.Child(_WORKLOAD, variant, folder) for variant, name in _VARIANTS.items()
  }
  passed = 0.0
  is_last = False
  try:
    while not is_last:
      row: dict[str, Any] = {'round': len(rows) + 1}
      for name, child in running.items():
        row[f'seconds {name}'] = child.ask('round')['seconds']
        passed += row[f'seconds {name}']
      rows.append(row)
      is_last = len(rows) == _FLAGS.rounds or passed >= 60 * _FLAGS.minutes or stop.requested
      if row['round'] % _FLAGS.rounds_per_evaluation == 0 or is_last:
        # All at once: a process may end before both are measured.
        row |= {
          f'accuracy {name}': child.ask('accuracy')['accuracy'] for name, child in running.items()
        }
        _write_rows(rows)
        command.show(_line(row, passed))
  finally:
    for child in running.values():
      child.end()


def _line(row: dict[str, Any], passed: float) -> str:
  of_each = '; '.join(
    f'{name} {row[f"seconds {name}"]:.2f} s, accuracy {row[f"accuracy {name}"]:.4f}'
    for name in _VARIANTS.values()
  )
  return f'round {row["round"]}, after {passed / 60:.1f} minutes: {of_each}\n'


def _csv(rows: Sequence[dict[str, Any]]) -> str:
  names = [
    'round',
    *(f'{what} {n}' for n in _VARIANTS.values() for what in ('seconds', 'accuracy')),
  ]
  lines = [','.join(names)]
  lines += [','.join(str(row.get(name, '')) for name in names) for row in rows]
  return '\n'.join(lines) + '\n'


def report(rows: Sequence[dict[str, Any]], source: str, not_quiet: Sequence[str]) -> str:
  """The text of RESULTS.md.

  Args:
    rows: A row a round; the first, in which programs are traced, is not among the medians.
    source: The file of the images.
    not_quiet: What else the machine did.
  """
  names = list(_VARIANTS.values())
  medians = [statistics.median(row[f'seconds {n}'] for row in rows[1:] or rows) for n in names]
  totals = [sum(row[f'seconds {n}'] for row in rows) for n in names]
  cells = [
    ['seconds a round, median', *(f'{m:.3f}' for m in medians)],
    [f'minutes for {len(rows)} rounds', *(f'{t / 60:.1f}' for t in totals)],
  ]
  cells += [
    [f'accuracy after round {row["round"]}', *(f'{row[f"accuracy {n}"]:.4f}' for n in names)]
    for row in _measured(rows)
  ]
  version = peer_environments.PEERS['pfl'].version()
  text = '# CIFAR-10 beside pfl-research\n\n'
  text += tables.markdown(['', *names], cells)
  text += (
    f'\n{medians[1] / medians[0]:.2f} x as fast as pfl-research {version} (two processes of one'
    f' thread each), whose setting it is: 1000 clients of 50 images ({source}), 50 a round, batches'
    f' of 10, one epoch at rate 0.1. Rounds in turn on one machine of {os.cpu_count()} processors.'
    f' Seed {_FLAGS.seed}.\n'
  )
  if not_quiet:
    text += f'\nThe machine was not quiet: {"; ".join(not_quiet)}.\n'
  return text


def _measured(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
  """The rows that have accuracies."""
  return [row for row in rows if len(row) > 1 + len(_VARIANTS)]


def draw(path: str, rows: Sequence[dict[str, Any]]) -> None:
  """Draws the accuracy by rounds and by seconds of training.

  Args:
    path: The file, PNG.
    rows: As of `report`.
  """
  figure, axes = style.figure(1, 2, width=4.2)
  lines: dict[str, Any] = {}
  for i, name in enumerate(_VARIANTS.values()):
    seconds = np.cumsum([row[f'seconds {name}'] for row in rows])
    measured = _measured(rows)
    accuracy = [row[f'accuracy {name}'] for row in measured]
    rounds = [row['round'] for row in measured]
    minutes = [seconds[r - 1] / 60 for r in rounds]
    for axis, x in zip(axes[0], (rounds, minutes)):
      (lines[name],) = axis.plot(x, accuracy, **style.line(i))
  for axis, label in zip(axes[0], ('round', 'minutes of training')):
    axis.set_xlabel(label)
    axis.set_ylabel('test accuracy')
    axis.grid(alpha=0.3)
  style.legend(figure, list(lines.values()), list(lines))
  style.write(figure, path)


if __name__ == '__main__':
  sys.exit(main())
