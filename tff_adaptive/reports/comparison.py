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
  made = [_table(groups, metric, target) for metric in metrics]
  figure = figures.comparison(
    {metric: curves.build(groups, metric, axis) for metric in metrics},
    axis=axis,
    title=title,
    levels=levels,
    log_scale=log_scale,
  )
  return report.Report(made, curves.table(groups, metrics, axis), figure, title)


def _table(
  groups: Mapping[str, Sequence[run_lib.Run]], metric: str, target: float | None
) -> table_lib.Table:
  """The table of a metric; its note says which curves end early, too."""
  made = tables.comparison_table(groups, metric, target=target)
  note = ' '.join(filter(None, (made.note, curves.note(groups, metric))))
  return dataclasses.replace(made, note=note)
