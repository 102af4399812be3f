"""The report that compares runs: a table for each metric, and their curves."""

import dataclasses
from collections.abc import Mapping, Sequence

from tff_adaptive.reports import curves, figures, number_texts, report, table as table_lib, tables
from tff_adaptive.runs import run as run_lib


def build(
  groups: Mapping[str, Sequence[run_lib.Run]],
  metrics: Sequence[str],
  *,
  axis: str = 'round',
  target: float | None = None,
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
) -> report.Report:
  """Returns the comparison of groups of runs.

  Args:
    groups: Label -> runs that differ in their seed.
    metrics: Columns of metrics.csv: a table and a panel each.
    axis: What the curves run along; a name in `runs.run.AXES`.
    target: If given, the rounds needed to reach this value are reported too.
    title: Over the figure.
    levels: Name -> value of horizontal lines, such as published results.
    log_scale: Those of the metrics whose axis is logarithmic.

  Raises:
    ValueError: If a run has no values of a metric or of the axis, or `log_scale` names another.
  """
  groups = {label: groups[label] for label in number_texts.in_order([*groups])}
  made: list[table_lib.Table] = []
  drawn: dict[str, list[curves.Curve]] = {}
  for metric in metrics:
    table = tables.comparison_table(groups, metric, target=target)
    drawn[metric] = curves.build(groups, metric, axis)
    note = ' '.join(filter(None, (table.note, curves.note(groups, drawn[metric], metric))))
    made.append(dataclasses.replace(table, note=note))
  figure = figures.comparison(drawn, axis=axis, title=title, levels=levels, log_scale=log_scale)
  return report.Report(made, curves.table(drawn, axis), figure, title)
