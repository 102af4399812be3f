"""Trains a model on a task with a federated optimizer; `--help` says how."""

import importlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from .cli import (
  baseline,
  cluster_check,
  command,
  flags,
  help_text,
  repeat,
  resolve,
  run,
  tensorflow_start,
)
from .cli.settings import Settings

# How the names of the columns begin whose last values are shown.
_SHOWN = ('train_', 'validation_', 'inference_')
# What a run may write, in the order in which it is named.
_FILES = ('metrics.csv', 'summary.json', 'curves.png', 'config.json')
_FOLDERS = (
  'tensorboard',
  'checkpoints',
  'model',
  'files',
  'client_evaluations',
  'ledger',
  'trace',
)


@command.entry('train.py', 'interrupted; rounds that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command and returns its exit code.

  The code is 0 if all rounds are done, 1 if the run failed or the model diverged, 2 for bad input,
  and 128 + the signal's number if a signal ended the run.
  """
  given = flags.parse(arguments, help_text.text)
  if given is None:
    return command.DONE
  with tensorflow_start.without_notes():  # A user's own file may import TensorFlow.
    given = repeat.with_config(given)
    # A check of the cluster has no folder to write.
    settings = resolve.resolve(given, writes=not given.get('check_ray'))
  if settings.runtime.check_ray:
    run.check(settings)
    return cluster_check.check(settings)
  # The end is shown before the result is judged: a run that diverged has a folder, too.
  outcome = run.run(settings, arguments)
  _show(outcome.result, settings)
  run.check_result(outcome.result)
  return outcome.exit_code


def _show(result: Any, settings: Settings) -> None:
  """Prints the end of a run: a table and the folder of its files; with --quiet, one line.

  With --json, standard output has the rounds only, so that this goes to standard error.
  """
  if settings.output.quiet:
    text = _in_one_line(result, settings.output.output_dir)
  else:
    text = _in_full(result, settings)
  if not settings.output.json:
    command.show(f'{text}\n')
  elif not settings.output.quiet:
    command.say(text)


def _in_one_line(result: Any, folder: str) -> str:
  """Returns the number of rounds, the last values on the validation data, and the folder."""
  rounds = _counted(result.summary['rounds'], 'round')
  last = _last_values(result.summary, ('validation_',))
  values = ''.join(f', {name} {value:.4f}' for name, value in last.items())
  if not result.is_complete:
    rounds += ' (not complete: the same command resumes it)'
  return f'{rounds}{values}; in {folder}'


def _in_full(result: Any, settings: Settings) -> str:
  """Returns a table of the last values and of their means, what went wrong, and the folder."""
  import pandas as pd

  summary = result.summary
  rounds = summary['rounds']
  evaluations = _counted(summary['evaluations_averaged'], 'evaluation')
  mean = f'mean of the last {min(100, rounds)} rounds ({evaluations})'
  # The test data are evaluated once, at the end, so their values have no mean over rounds.
  values = {**_last_values(summary, _SHOWN), **summary.get('test', {})}
  columns = {'last': values, mean: summary['mean_last_100_rounds']}
  of_baseline = baseline.column(summary)
  if of_baseline:
    columns['baseline'] = of_baseline
  texts_by_column = {name: _texts(column, values) for name, column in columns.items()}
  table = pd.DataFrame(texts_by_column, index=list(values))
  end = ''
  if not result.is_complete:
    end = ' (not complete)'
  lines = [
    f'{_counted(rounds, "round")}, {summary["seconds_training"]:.0f} s of training{end};'
    f' client_weighting: {settings.clients.client_weighting}',
    table.to_string(),
    *baseline.last_lines(summary),
    f'In {settings.output.output_dir}: {", ".join(_written(settings.output.output_dir))}',
  ]
  counts = summary.get('population')
  if counts:
    texts = [f'{name.replace("_", " ")} {value:,.0f}' for name, value in counts.items()]
    lines.append(f'The clients that were drawn: {", ".join(texts)}.')
  if summary['non_finite_clients']:
    lines.append(f'{summary["non_finite_clients"]} client updates, not finite, were left out.')
  if not result.is_complete:
    lines.append('The same command resumes the run.')
  return '\n'.join(lines)


def _written(folder: str) -> list[str]:
  """Returns the names of the files and folders that the run has written to its folder."""
  names = [name for name in _FILES if os.path.isfile(os.path.join(folder, name))]
  names += [f'{name}/' for name in _FOLDERS if os.path.isdir(os.path.join(folder, name))]
  return names


def _texts(values: Mapping[str, float], names: Iterable[str]) -> list[str]:
  """Formats the values of these names: 'nan' if one is not defined, and '' if there is none."""
  return [f'{values[name]:.4f}' if name in values else '' for name in names]


def _last_values(summary: Mapping[str, Any], beginnings: tuple[str, ...]) -> dict[str, float]:
  """Returns the last values of the columns whose names begin in one of these ways."""
  last = summary['last']
  return {name: value for name, value in last.items() if name.startswith(beginnings)}


def _counted(number: int, what: str) -> str:
  if number == 1:
    return f'1 {what}'
  return f'{number} {what}s'


if __name__ == '__main__':
  sys.exit(main())
