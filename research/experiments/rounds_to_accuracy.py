"""Rounds of FedAvg to a target accuracy on MNIST, by C, E and B, IID and in label shards.

usage: python -m research.experiments.rounds_to_accuracy --data_dir=DIR [--flag=value ...]

Trains mnist_2nn until the test accuracy is 97 %, or mnist_cnn until it is 99 %, for each fraction
C of the 100 clients, epochs E and batch size B (all: one step an epoch), and writes RESULTS.md. A
run ends at the first of --limits by which it reached the target, or at the last of them. The same
command again goes on where it ended; Ctrl-C ends after saving.

  python -m research.experiments.rounds_to_accuracy --data_dir=DIR
  python -m research.experiments.rounds_to_accuracy --data_dir=DIR --task=mnist_cnn --limits=20,60
"""

import functools
import itertools
import os
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command, grid
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib

from . import frame

TARGETS = {'mnist_2nn': 0.97, 'mnist_cnn': 0.99}
_METRIC = 'validation_accuracy'
_CLIENTS = 100
_SPLITS = ('iid', 'shards')

Cell = tuple[str, str, str, str, str]  # Split, C, E, B, rate.

_FLAGS = frame.flags('rounds_to_accuracy', seeds=False)
absl_flags.DEFINE_enum('task', 'mnist_2nn', list(TARGETS), 'The model.', flag_values=_FLAGS)
for _name, _default, _help in (
  ('fractions', '0.1,0.5', 'C.'),
  ('epochs', '1,5', 'E.'),
  ('batch_sizes', '10,all', 'B.'),
  ('learning_rates', '0.1,0.5', 'Client rate for each of --batch_sizes.'),
  ('limits', '20,50,100,200,400', 'Rounds after which to look; the last ends the run.'),
):
  absl_flags.DEFINE_list(_name, _default.split(','), _help, flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 0, 'Seed.', flag_values=_FLAGS)
_FLAGS.set_default('results', None)


@command.entry('rounds_to_accuracy.py', 'interrupted; rounds that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run diverged, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  _check_flags()
  for cell in _cells():  # Of finished runs too: the folder's name says no rate.
    _settings(cell, 1)
  if not _FLAGS.results:
    _FLAGS.results = os.path.join('results', _FLAGS.task)
  stages = [(functools.partial(jobs, int(limit)), ['task_option']) for limit in _FLAGS.limits]
  return frame.run(
    _FLAGS, stages, lambda: atomic_files.write_text(f'{_FLAGS.results}.md', report())
  )


def _check_flags() -> None:
  """ValueError if a flag is bad."""
  for name in ('limits', 'epochs', 'batch_sizes', 'fractions', 'learning_rates'):
    values = [text for text in _FLAGS[name].value if (name, text) != ('batch_sizes', 'all')]
    kind = int if name in ('limits', 'epochs', 'batch_sizes') else float
    try:
      numbers = [kind(text) for text in values]
    except ValueError:
      numbers = []
    is_growing = name != 'limits' or numbers == sorted(numbers)
    if len(numbers) < len(values) or not _FLAGS[name].value or not is_growing or min(numbers) <= 0:
      raise ValueError(
        f'--{name}={",".join(_FLAGS[name].value)}: give numbers above 0'
        f'{", growing" if name == "limits" else ", or all" if name == "batch_sizes" else ""}.'
      )
  if len(_FLAGS.learning_rates) != len(_FLAGS.batch_sizes):
    raise ValueError('give one of --learning_rates for each of --batch_sizes.')


def _cells() -> list[Cell]:
  """(split, C, E, B, rate), the quickest first."""
  batches = list(zip(_FLAGS.batch_sizes, _FLAGS.learning_rates))
  return [
    (split, fraction, epochs, *batch)
    for fraction, batch, epochs, split in itertools.product(
      _FLAGS.fractions, batches, _FLAGS.epochs, _SPLITS
    )
  ]


def _folder(cell: Cell) -> str:
  split, fraction, epochs, batch, _ = cell
  name = f'{_FLAGS.task}_{split}_C{fraction}_E{epochs}_B{batch}_seed{_FLAGS.seed}'
  return os.path.join(_FLAGS.output_dir, name)


def _settings(cell: Cell, limit: int) -> grid.Settings:
  """A run's settings, to train to a limit; ValueError if its folder has another run."""
  split, fraction, epochs, batch, rate = cell
  given = {
    **{'task': _FLAGS.task, 'task_option': [f'split={split}'], 'algorithm': 'fed_avg'},
    **{'rounds': limit, 'rounds_per_evaluation': 1, 'seed': _FLAGS.seed},
    'clients_per_round': max(1, round(float(fraction) * _CLIENTS)),
    'client_epochs': int(epochs),
    'batch_size': 0 if batch == 'all' else int(batch),
    'client_learning_rate': float(rate),
    'data_dir': _FLAGS.data_dir or None,
  }
  return grid.settings_of({}, _folder(cell), given)


def jobs(limit: int) -> frame.Jobs:
  """The runs that go on to a limit: those that have not reached the target."""
  found = {}
  for cell in _cells():
    done = _read(cell)
    if done is None or (_reached(done) is None and done.rows[-1]['round'] < limit):
      found[_folder(cell)] = [_settings(cell, limit)]
  return found


def _read(cell: Cell) -> run_lib.Run | None:
  """The run of a cell, or None if it has no rows yet."""
  try:
    return run_lib.load_run(_folder(cell))
  except (run_lib.NoRoundsError, OSError):
    return None


def _reached(run: run_lib.Run) -> int | None:
  return tables.rounds_to(run, _METRIC, TARGETS[_FLAGS.task])


def report() -> str:
  """The text of RESULTS.md, of the cells that were begun; ValueError if there is none."""
  target = TARGETS[_FLAGS.task]
  found = {cell: run for cell in _cells() if (run := _read(cell)) is not None}
  if not found:
    raise ValueError(f'no run in {_FLAGS.output_dir} was begun.')
  rows = []
  for _, *of_row in _cells():
    fraction, epochs, batch, rate = of_row
    both = [found.get((split, fraction, epochs, batch, rate)) for split in _SPLITS]
    # Those of the runs themselves; of a row without runs, that of the command.
    rates = {f'{run.settings["client_learning_rate"]:g}' for run in both if run is not None}
    steps = int(epochs) * (1 if batch == 'all' else -(-600 // int(batch)))
    row = [f'{fraction}, {epochs}, {batch}', ', '.join(sorted(rates)) or rate, str(steps)]
    rows.append([*row, *map(_text, both)])
  rows = [row for i, row in enumerate(rows) if row not in rows[:i]]
  text = (
    f'# Rounds of FedAvg to {100 * target:g} % test accuracy, {_FLAGS.task}\n\n'
    '100 clients of 600 examples: IID, or two shards of 300 of the label-sorted examples each. C:'
    ' fraction of the clients in a round; E: epochs; B: batch size; evaluated after each round,'
    f' seed {_FLAGS.seed}. The client rate is one for each B, not tuned for each row. Where the'
    ' target was not reached the best accuracy is given.\n\n'
  )
  flags = f' --task={_FLAGS.task} --data_dir=DIR'
  for name in ('fractions', 'epochs', 'batch_sizes', 'learning_rates', 'limits'):
    if _FLAGS[name].value != _FLAGS[name].default:
      flags += f' --{name}={",".join(_FLAGS[name].value)}'
  heading = ['C, E, B', 'rate', 'local steps', *(f'{split}: rounds' for split in _SPLITS)]
  origin = frame.origin('rounds_to_accuracy', flags, list(found.values()))
  return f'{text}{tables.markdown(heading, rows)}\n{origin}'


def _text(run: run_lib.Run | None) -> str:
  if run is None:
    return ''
  reached = _reached(run)
  if reached is not None:
    return str(reached)
  best = max(run.curve(_METRIC).values())
  return f'> {run.rows[-1]["round"]:.0f} ({100 * best:.1f} %)'


if __name__ == '__main__':
  sys.exit(main())
