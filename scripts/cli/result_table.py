"""The table at the end of a run."""

import sys
from collections.abc import Mapping
from typing import Any

from . import command

_SHOWN = ('train_', 'validation_', 'inference_')  # What columns of these names say.


def show(result: Any, folder: str, client_weighting: str) -> None:
  """Writes a short table of a result, and the paths of its files.

  Args:
    result: The `training.TrainingResult`.
    folder: The run's folder.
    client_weighting: How clients were weighted.
  """
  import pandas as pd

  summary = result.summary
  rounds, count = summary['rounds'], summary['evaluations_averaged']
  shown = {n: v for n, v in summary['last'].items() if n.startswith(_SHOWN)}
  mean = f'mean of the last {min(100, rounds)} rounds ({_counted(count, "evaluation")})'
  table = pd.Series({**shown, **summary.get('test', {})}).to_frame('last')
  table[mean] = pd.Series(summary['mean_last_100_rounds']).reindex(table.index)
  state = '' if result.is_complete else ' (not complete)'
  sys.stdout.write(
    f'{_counted(rounds, "round")}, {summary["seconds_training"]:.0f} s of training{state};'
    f' client_weighting: {client_weighting}\n'
    f'{table.to_string(float_format="%.4f", na_rep="")}\n'
  )
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


def _counted(number: int, what: str) -> str:
  return f'{number} {what}{"" if number == 1 else "s"}'


def _of_population(found: Mapping[str, Any]) -> str:
  """Returns a line about what happened to the clients that were drawn."""
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
