"""The form that compares settings: a table for each metric, differences by seed, and curves."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive.reports import report, tables
from tff_adaptive.reports.forms import entry
from tff_adaptive.runs import groups as groups_lib, run as run_lib


def _build(runs: entry.Runs, given: Mapping[str, Any], title: str) -> report.Report:
  return tables.comparison(
    groups_lib.group(runs, given['label_by'] or None),
    given['metric'] or [tables.default_metric(runs)],
    axis=given['x'],
    target=given['target'],
    at_megabytes=given['at_megabytes'],
    title=title,
    levels=given['level'],
    log_scale=given['log_scale'],
    columns=given['columns'],
    against=given['against'],
  )


FORM = entry.Form(
  'comparison',
  'prints the table and the differences that seeds can show, and writes them to results/digits.md,'
  " the figure to results/digits.png and the curves' means and standard deviations to"
  ' results/digits.csv.',
  {'output': 'results/digits', 'target': '0.95'},
  (
    entry.METRIC,
    entry.LABEL_BY,
    entry.COLUMNS,
    entry.WINDOW,
    entry.Option(
      'x',
      f'The horizontal axis of curves: {", ".join(run_lib.AXES)}.',
      default='round',
      choices=tuple(run_lib.AXES),
    ),
    entry.Option(
      'target',
      'Report the rounds needed to reach this value of the metric and, with another axis --x, what'
      ' is spent of it: --x=megabytes gives the megabytes to the target.',
      float,
    ),
    entry.Option(
      'at_megabytes',
      'Report the metric at the last evaluation before more than so many megabytes were sent by and'
      ' to clients; with --x=megabytes_up or megabytes_down those of one direction.',
      float,
    ),
    entry.Option('level', 'A horizontal line in the figure, NAME=VALUE; may be repeated.', dict),
    entry.Option('log_scale', 'Metrics with a logarithmic axis: M,M.', list),
    entry.Option(
      'against',
      'The label of the row from which the differences of the others are taken. Default: the best.',
    ),
  ),
  _build,
  takes_metrics=True,
)
