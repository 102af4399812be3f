"""The table at the end of a command that has done several runs."""

import sys
from collections.abc import Iterable, Sequence
from typing import Optional

from scripts import run_folder
from tff_adaptive import files
from tff_adaptive.reports import runs, tables


def write(
  path: str,
  folders: Iterable[str],
  *,
  label_by: Optional[Sequence[str]] = None,
  metric: Optional[str] = None,
  note: str = '',
) -> bool:
  """Prints a table of the runs that have begun, if any, and writes it.

  Args:
    path: Where to.
    folders: The runs' folders.
    label_by: Settings that tell runs apart; default: all that differ.
    metric: Column of metrics.csv; default: the task's metric.
    note: A line below the table.

  Returns:
    False if it could not be made, which is told: the runs are no worse for it.
  """
  try:
    found = runs.read_begun(folder for folder in folders if run_folder.is_begun(folder))
    if not found:
      return True
    groups = runs.group(found, label_by)
    table = tables.comparison(groups, metric or tables.default_metric(found))
    if note:
      table += f'\n{note}\n'
    files.write_text(path, table)
  except (ValueError, OSError) as error:
    sys.stderr.write(f'The runs are kept, but there is no table: {error}\n')
    return False
  sys.stdout.write(table)
  return True
