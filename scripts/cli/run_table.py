"""The table at the end of a command that has done several runs."""

import os
from collections.abc import Iterable, Sequence

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import tables
from tff_adaptive.runs import config, groups as groups_lib, run as run_lib

from . import command


def write(
  path: str,
  folders: Iterable[str],
  *,
  label_by: Sequence[str] | None = None,
  metric: str | None = None,
  note: str = '',
) -> bool:
  """Prints a table of the runs that have begun, if any, and writes it.

  Args:
    path: Where to.
    folders: The runs' folders.
    label_by: Settings that distinguish runs; default: all that differ.
    metric: Column of metrics.csv; default: the task's metric.
    note: A line below the table.

  Returns:
    False if it could not be made, which is reported: the runs are no worse for it.
  """
  try:
    found = run_lib.load_begun(
      folder for folder in folders if os.path.exists(os.path.join(folder, config.FILE))
    )
    if not found:
      return True
    groups = groups_lib.group(found, label_by)
    table = tables.comparison_table(groups, metric or tables.default_metric(found)).markdown()
    if note:
      table += f'\n{note}\n'
    atomic_files.write_text(path, table)
  except (ValueError, OSError) as error:
    command.say(f'The runs are saved, but there is no table: {error}')
    return False
  command.show(table)
  return True
