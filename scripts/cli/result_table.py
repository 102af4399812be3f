"""The table that a run ends with."""

import sys
from collections.abc import Mapping
from typing import Any


def show(result: Any, folder: str, client_weighting: str) -> None:
  """Writes a short table of a result and where the files are.

  Args:
    result: The `training.TrainingResult`.
    folder: The run's folder.
    client_weighting: How clients were weighed.
  """
  import rich.console
  import rich.table

  from . import command

  summary = result.summary
  means = summary['mean_last_100_rounds']
  rounds = summary['rounds']
  title = (
    f'{rounds} round{"" if rounds == 1 else "s"}, {summary["seconds_training"]:.0f} s of training'
  )
  title = title if result.is_complete else title + ' (not complete)'
  table = rich.table.Table(title=title, caption=f'client_weighting: {client_weighting}')
  count = summary['evaluations_averaged']
  averaged = f'({count} evaluation{"" if count == 1 else "s"})'
  for heading in ('', 'last', f'mean of the last {min(100, rounds)} rounds {averaged}'):
    table.add_column(heading, justify='right' if heading else 'left')
  for name, value in summary['last'].items():
    if name.startswith(('train_', 'validation_', 'inference_')):
      table.add_row(name, f'{value:.4f}', f'{means[name]:.4f}' if name in means else '')
  for name, value in summary.get('test', {}).items():
    table.add_row(name, f'{value:.4f}', '')
  rich.console.Console().print(table)
  command.show(
    f'In {folder}: metrics.csv, summary.json, curves.png, config.json, tensorboard/, checkpoints/\n'
  )
  if 'population' in summary:
    sys.stdout.write(_of_population(summary['population']))
  if summary['non_finite_clients']:
    sys.stdout.write(
      f'{summary["non_finite_clients"]} client updates were not finite and were left out.\n'
    )
  if not result.is_complete:
    sys.stdout.write('The same command goes on from here.\n')


def _of_population(found: Mapping[str, Any]) -> str:
  """Returns a line on what became of the clients that were drawn."""
  line = (
    f'{found["virtual_seconds"]:,.0f} virtual seconds; of {found["selected"]:,} clients drawn'
    f' {found["finished"]:,} finished, {found["partial"]:,} in part, {found["dropped"]:,} were'
    ' dropped'
  )
  if found['rounds_with_few_available']:
    line += f'; {found["rounds_with_few_available"]:,} rounds had too few clients available'
  if found['rounds_without_clients']:
    line += f'; {found["rounds_without_clients"]:,} rounds ended without any'
  return line + '.\n'
