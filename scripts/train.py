"""Trains a model on a task with a federated optimizer; `--help` says how."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from .cli import baseline, command, flags, help_text, resolve, run

_SHOWN = ('train_', 'validation_', 'inference_')  # How the names of these columns begin.


@command.entry('train.py', 'interrupted; rounds that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command and returns its exit code.

  The code is 0 if all rounds are done, 1 if the run failed or the model diverged, 2 for bad input,
  and 128 + the signal's number if a signal ended the run.
  """
  if (given := flags.parse(arguments, help_text.text)) is None:
    return command.DONE
  settings = resolve.resolve(given)
  outcome = run.run(settings, arguments)
  _show(outcome.result, settings.output.output_dir, settings.clients.client_weighting)
  run.check_result(outcome.result)
  return outcome.exit_code


def _show(result: Any, folder: str, client_weighting: str) -> None:
  """Prints a short table of a run's result, and the folder of its files."""
  import pandas as pd

  summary = result.summary
  rounds, count = summary['rounds'], summary['evaluations_averaged']
  shown = {n: v for n, v in summary['last'].items() if n.startswith(_SHOWN)}
  mean = f'mean of the last {min(100, rounds)} rounds ({_counted(count, "evaluation")})'
  last = {**shown, **summary.get('test', {})}
  columns = {'last': last, mean: summary['mean_last_100_rounds']}
  of_baseline = baseline.column(summary)
  if of_baseline:
    columns['baseline'] = of_baseline
  table = pd.DataFrame(
    {name: _texts(values, last) for name, values in columns.items()}, index=[*last]
  )
  lines = [
    f'{_counted(rounds, "round")}, {summary["seconds_training"]:.0f} s of training'
    f'{"" if result.is_complete else " (not complete)"}; client_weighting: {client_weighting}',
    table.to_string(),
    *baseline.last_lines(summary),
    f'In {folder}: metrics.csv, summary.json, curves.png, config.json, tensorboard/, checkpoints/',
  ]
  if found := summary.get('population'):
    counts = (f'{name.replace("_", " ")} {value:,.0f}' for name, value in found.items())
    lines.append(f'The clients that were drawn: {", ".join(counts)}.')
  if summary['non_finite_clients']:
    lines.append(f'{summary["non_finite_clients"]} client updates, not finite, were left out.')
  if not result.is_complete:
    lines.append('The same command resumes the run.')
  command.show('\n'.join(lines) + '\n')


def _texts(values: Mapping[str, float], names: Iterable[str]) -> list[str]:
  """Formats the values of these names: 'nan' if one is not defined, and '' if there is none."""
  return [f'{values[name]:.4f}' if name in values else '' for name in names]


def _counted(number: int, what: str) -> str:
  return f'{number} {what}{"" if number == 1 else "s"}'


if __name__ == '__main__':
  sys.exit(main())
