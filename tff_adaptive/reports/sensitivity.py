"""How a result depends on one hyperparameter: tau, beta, mu or any other setting."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import (
  cross_tables,
  number_texts,
  report,
  scores,
  style,
  table as table_lib,
)
from tff_adaptive.runs import groups as groups_lib, names, run as run_lib

_DIGITS = 6  # Of a value, or as many as tell two apart.
Lines = Mapping[str, Mapping[float, scores.Score]]  # Label -> value of the parameter -> score.


def build(
  runs: Sequence[run_lib.Run],
  column: str,
  parameter: str,
  *,
  label_by: Sequence[str] | None = None,
  title: str = '',
) -> report.Report:
  """Returns the scores of some runs by one of their settings.

  Where runs with the same value differ in other settings too, such as rates, the best of these
  counts, by the mean over its seeds.

  Args:
    runs: The runs; those that have no such setting are left out.
    column: The column of metrics.csv.
    parameter: The setting, a number.
    label_by: The settings that distinguish lines; by default the task, the algorithm and the server
      optimizer.
    title: Over the figure.

  Raises:
    ValueError: If no run has the setting, or all have the same.
  """
  found = [run for run in runs if _value(run, parameter) is not None]
  values = sorted({value for run in found if (value := _value(run, parameter)) is not None})
  if len(values) < 2:
    raise ValueError(
      f'the runs have {len(values)} value{"" if len(values) == 1 else "s"} of {parameter!r}: a line'
      ' needs two or more.'
    )
  known = [n for n in ('task', 'algorithm', 'server_optimizer') if n in found[0].settings]
  one = [n for n in known if n == 'algorithm']
  groups = groups_lib.partition(found, label_by or _differing(found, known) or one or None)
  lines = {
    label: {
      value: scores.best(same, column)
      for value in values
      if (same := [run for run in members if _value(run, parameter) == value])
    }
    for label, members in groups.items()
  }
  what = scores.heading(column, found)
  texts = number_texts.distinct(values, _DIGITS)
  rows = []
  for label, line in lines.items():
    cells = {f'{parameter} = {texts[value]}': score for value, score in line.items()}
    shown = {name: scores.text(score, column) for name, score in cells.items()}
    rows.append(cross_tables.Row([label], cells, shown, scores.is_best(cells, column)))
  by = 'validation' if column.startswith('validation_') else names.metric(column)
  columns = [f'{parameter} = {texts[value]}' for value in values]
  data = [
    [label, texts[value], len(s.values), s.mean, s.std, s.label]
    for label, line in lines.items()
    for value, s in line.items()
  ]
  heading = ['label', parameter, 'runs', 'mean', 'std', 'settings']
  return report.Report(
    [cross_tables.table([''], columns, rows, found, what, by=by)],
    table_lib.csv_text([heading, *data]),
    _draw(lines, values, column, parameter, what, title),
    title,
  )


def _value(run: run_lib.Run, parameter: str) -> float | None:
  value = run.settings.get(parameter)
  is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
  return None if value is None or not is_number else float(value)


def _differing(runs: Sequence[run_lib.Run], settings: Sequence[str]) -> list[str]:
  return [n for n in settings if len({str(run.settings.get(n)) for run in runs}) > 1]


def _draw(
  lines: Lines, values: Sequence[float], column: str, parameter: str, what: str, title: str
) -> Any:
  figure, ((axes,),) = style.figure(1, 1, 6.0, 3.8, title=title)
  factor, _ = scores.unit(column)
  shown = []
  for number, (label, line) in enumerate(lines.items()):
    finite = {v: s for v, s in line.items() if s.is_finite}
    means = factor * np.array([s.mean for s in finite.values()])
    stds = factor * np.array([s.std for s in finite.values()])
    look = style.marked(number)
    axes.errorbar(
      list(finite), means, yerr=stds if stds.any() else None, label=label, capsize=2, **look
    )
    shown += [*(means - stds), *(means + stds)]
  if values[0] > 0 and values[-1] / values[0] >= 10:
    axes.set_xscale('log')
  limits = style.limits(shown, margin=0.08)
  if limits is not None:
    axes.set_ylim(*limits)
  axes.grid(alpha=0.3)
  axes.set(xlabel=parameter, ylabel=what.replace(', mean', ',\nmean'))
  style.legend(figure, *axes.get_legend_handles_labels())
  return figure
