"""A table of any setting by any other, such as schedules by optimizers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_adaptive.reports import number_texts, report, scores, table as table_lib, tables
from tff_adaptive.runs import names, run as run_lib

TEST = 'test_accuracy'
# What is not a setting by itself, but follows from some.
DERIVED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
  'algorithm': names.composition,
  'correction': names.correction,
  'server_optimizer': names.server_optimizer,
}


def build(
  runs: Sequence[run_lib.Run], rows: str, columns: str, metric: str | None = None, title: str = ''
) -> report.Report:
  """A row for each value of a setting, a column for each of another.

  A cell is the mean over the last 100 rounds of a column of metrics.csv, or the accuracy on the
  test data after the last round; mean and sample standard deviation over the seeds. The best of
  a column is bold.

  Args:
    runs: The runs; of those of a cell that differ in other settings than the seed, the best on the
      validation data counts.
    rows: A setting, or 'algorithm', 'correction' or 'server_optimizer', as papers call them.
    columns: Another.
    metric: A column of metrics.csv, or 'test_accuracy'; the task's metric on the validation data
      by default.
    title: Over the table.

  Raises:
    ValueError: If the runs do not have the settings, or no values of the metric.
  """
  if rows == columns:
    raise ValueError(f'rows and columns are both {rows}: give two settings.')
  by_validation = tables.default_metric(runs)
  column = metric or by_validation
  cells: dict[tuple[str, str], list[run_lib.Run]] = {}
  for run in runs:
    cells.setdefault((_value(run, rows), _value(run, columns)), []).append(run)
  row_names = number_texts.in_order(list(dict.fromkeys(row for row, _ in cells)))
  column_names = number_texts.in_order(list(dict.fromkeys(name for _, name in cells)))
  found: dict[tuple[str, str], scores.Score] = {}
  for cell, members in cells.items():
    label, best = scores.best_runs(members, by_validation)
    found[cell] = (
      scores.score_on_test(best, label) if column == TEST else scores.score(best, column, label)
    )
  bold = {
    (row_names.index(row), j + 1)
    for j, name in enumerate(column_names)
    for row in scores.is_best({r: s for (r, c), s in found.items() if c == name}, column)
  }
  factor, symbol = scores.unit(column)
  texts = [
    [
      row,
      *(scores.text(found.get((row, name)), factor, 2 if symbol else 4) for name in column_names),
    ]
    for row in row_names
  ]
  when = 'after the last round' if column == TEST else f'mean over the {scores.last_rounds(runs)}'
  caption = title or f'{names.metric(column)}, {when}{", %" if symbol else ""}'.capitalize()
  chosen = {f'{row}, {name}': s.label for (row, name), s in found.items() if s.label}
  heading = [rows.replace('_', ' '), *column_names]
  note = scores.note(chosen, runs, on_test=column == TEST)
  table = table_lib.Table(heading, texts, frozenset(bold), caption, note)
  return report.Report([table], table.csv(), title=title)


def _value(run: run_lib.Run, setting: str) -> str:
  """A run's value of a setting, as it stands in the table."""
  needed = setting if setting in run.settings else 'algorithm'
  if needed not in run.settings or (setting not in run.settings and setting not in DERIVED):
    raise ValueError(
      f'{run.folder} has no setting {setting!r} in config.json; it has: '
      f'{", ".join(sorted(run.settings))}.'
    )
  if setting in DERIVED:
    return DERIVED[setting](run.settings)
  value = run.settings[setting]
  if isinstance(value, list):
    return ', '.join(map(str, value))
  return 'none' if value is None else str(value)
