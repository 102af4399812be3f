"""Rounds of FedAvg to a target accuracy on MNIST, by C, E and B, IID and in label shards.

usage: python -m research.experiments.rounds_to_accuracy --data_dir=DIR [--flag=value ...]

Trains mnist_2nn until the test accuracy is 97 %, or mnist_cnn until it is 99 %, for each fraction
C of the 100 clients, epochs E and batch size B (all: one step an epoch), and writes RESULTS.md. A
run ends at the first of --limits by which it reached the target, or at the last of them. The same
command again goes on where it ended; Ctrl-C ends after saving.

  python -m research.experiments.rounds_to_accuracy --data_dir=DIR
  python -m research.experiments.rounds_to_accuracy --data_dir=DIR --task=mnist_cnn --limits=20,60
"""

import itertools
import math
import os
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command, records, resolve, result_table, run, run_folder
from scripts.cli.settings import Settings
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib

TARGETS = {'mnist_2nn': 0.97, 'mnist_cnn': 0.99}
_METRIC = 'validation_accuracy'
_CLIENTS = 100
_SPLITS = ('iid', 'shards')

Cell = tuple[str, str, str, str, str]  # Split, C, E, B, rate.

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_enum('task', 'mnist_2nn', list(TARGETS), 'The model.', flag_values=_FLAGS)
absl_flags.DEFINE_list('fractions', ['0.1', '0.5'], 'C.', flag_values=_FLAGS)
absl_flags.DEFINE_list('epochs', ['1', '5'], 'E.', flag_values=_FLAGS)
absl_flags.DEFINE_list('batch_sizes', ['10', 'all'], 'B.', flag_values=_FLAGS)
absl_flags.DEFINE_list(
  'learning_rates', ['0.1', '0.5'], 'Client rate for each of --batch_sizes.', flag_values=_FLAGS
)
absl_flags.DEFINE_list(
  'limits',
  ['20', '50', '100', '200', '400'],
  'Rounds after which to look whether the target is reached; the last ends the run.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer('seed', 0, 'Seed.', flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, 'Folder with mnist_digits.npz.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output_dir', 'runs/lecture_43', "Where the runs' folders go.", flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'results', None, 'Where to write: RESULTS.md. Default results/TASK.', flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=_FLAGS)


@command.entry('rounds_to_accuracy.py', 'interrupted; rounds that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run diverged, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  limits = _check_flags()
  for cell in _cells():  # Of finished runs too: the folder's name says no rate.
    run_folder.read_config(_folder(cell), records.of(_settings(cell, 1)))
  results = _FLAGS.results or os.path.join('results', _FLAGS.task)
  command.check_output('results', results)
  failed = command.DONE
  for cell in [] if _FLAGS.report_only else _cells():
    try:
      code = _train(cell, limits)
    except command.FailureError as error:
      failed = command.complain('rounds_to_accuracy.py', error, command.FAILED)
      continue
    if code:
      return code
  atomic_files.write_text(f'{results}.md', report())
  command.show(f'{results}.md is written.\n')
  return failed


def _check_flags() -> list[int]:
  """Returns the limits; ValueError if a flag is bad."""
  is_whole = all(limit.isdecimal() for limit in _FLAGS.limits)
  limits = [int(limit) for limit in _FLAGS.limits] if is_whole else []
  if not limits or limits != sorted(limits) or limits[0] < 1:
    raise ValueError(f'--limits={",".join(_FLAGS.limits)}: give growing numbers such as 20,50.')
  if len(_FLAGS.learning_rates) != len(_FLAGS.batch_sizes):
    raise ValueError('give one of --learning_rates for each of --batch_sizes.')
  for batch in _FLAGS.batch_sizes:
    if batch != 'all' and not (batch.isdecimal() and int(batch)):
      raise ValueError(f'--batch_sizes={batch}: give whole numbers such as 10, or all.')
  for epochs in _FLAGS.epochs:
    if not (epochs.isdecimal() and int(epochs)):
      raise ValueError(f'--epochs={epochs}: give whole numbers such as 5.')
  for flag in ('fractions', 'learning_rates'):
    for text in _FLAGS[flag].value:
      _number(flag, text)
  return limits


def _number(flag: str, text: str) -> float:
  try:
    number = float(text)
  except ValueError:
    number = math.nan
  if not 0 < number < math.inf:
    raise ValueError(f'--{flag}={text}: give numbers above 0.')
  return number


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


def _settings(cell: Cell, limit: int) -> Settings:
  """A run's settings, to train to a limit; ValueError if a flag is bad."""
  split, fraction, epochs, batch, rate = cell
  return resolve.resolve(
    task=_FLAGS.task,
    task_option=[f'split={split}'],
    algorithm='fed_avg',
    rounds=limit,
    clients_per_round=max(1, round(float(fraction) * _CLIENTS)),
    client_epochs=int(epochs),
    batch_size=0 if batch == 'all' else int(batch),
    client_learning_rate=float(rate),
    rounds_per_evaluation=1,
    seed=_FLAGS.seed,
    output_dir=_folder(cell),
    data_dir=_FLAGS.data_dir or None,
  )


def _train(cell: Cell, limits: Sequence[int]) -> int:
  for limit in limits:
    done = _read(cell)
    if done is not None and (_reached(done) is not None or done.rows[-1]['round'] > limit):
      continue
    command.say(f'{_folder(cell)}, to round {limit}')
    outcome = run.run(_settings(cell, limit))
    result_table.show(outcome.result, _folder(cell))
    run.check_result(outcome.result)
    if outcome.exit_code:
      return outcome.exit_code
  return command.DONE


def _read(cell: Cell) -> run_lib.Run | None:
  if not run_folder.is_begun(_folder(cell)):
    return None
  try:
    return run_lib.load_run(_folder(cell))
  except run_lib.NoRoundsError:
    return None


def _reached(run: run_lib.Run) -> int | None:
  return tables.rounds_to(run, _METRIC, TARGETS[_FLAGS.task])


def report() -> str:
  """The text of RESULTS.md, of the cells that were begun; ValueError if there is none."""
  target = TARGETS[_FLAGS.task]
  heading = ['C, E, B', 'rate', 'local steps', *(f'{split}: rounds' for split in _SPLITS)]
  rows: list[list[str]] = []
  example: run_lib.Run | None = None
  for fraction, epochs, (batch, rate) in itertools.product(
    _FLAGS.fractions, _FLAGS.epochs, zip(_FLAGS.batch_sizes, _FLAGS.learning_rates)
  ):
    found = [_read((split, fraction, epochs, batch, rate)) for split in _SPLITS]
    example = example or next((run for run in found if run is not None), None)
    steps = int(epochs) * (1 if batch == 'all' else -(-600 // int(batch)))
    name = f'{fraction}, {epochs}, {batch}'
    # Those of the runs themselves; of a row without runs, that of the command.
    rates = {f'{run.settings["client_learning_rate"]:g}' for run in found if run is not None}
    rows.append(
      [name, ', '.join(sorted(rates)) or rate, str(steps), *(_text(run) for run in found)]
    )
  if example is None:
    raise ValueError(f'no run in {_FLAGS.output_dir} was begun.')
  text = (
    f'# Rounds of FedAvg to {100 * target:g} % test accuracy, {_FLAGS.task}\n\n'
    '100 clients of 600 examples: IID, or two shards of 300 of the label-sorted examples each. C:'
    ' fraction of the clients in a round; E: epochs; B: batch size; evaluated after each round,'
    f' seed {_FLAGS.seed}. The client rate is one for each B, not tuned for each row. Where the'
    ' target was not reached the best accuracy is given.\n\n'
  )
  versions = ', '.join(f'{k} {v}' for k, v in example.config['versions'].items())
  line = f'python -m research.experiments.rounds_to_accuracy --task={_FLAGS.task} --data_dir=DIR'
  for name in ('fractions', 'epochs', 'batch_sizes', 'learning_rates', 'limits'):
    if _FLAGS[name].value != _FLAGS[name].default:
      line += f' --{name}={",".join(_FLAGS[name].value)}'
  text += tables.markdown(heading, rows)
  return text + (
    f'\nData: {run_lib.without_folders(example.config["data"]["source"])}. Made by `{line}`;'
    f' {example.config["started"][:10]}; {versions}.\n'
  )


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
