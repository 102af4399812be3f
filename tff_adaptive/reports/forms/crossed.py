"""The form that shows any settings by any other setting."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive.reports import cross_tables, report
from tff_adaptive.reports.forms import entry


def _build(runs: entry.Runs, given: Mapping[str, Any], title: str) -> report.Report:
  metric = entry.metric_of(runs, given)
  columns = ','.join(given['columns'])
  return cross_tables.build(runs, given['rows'], columns, metric, title)


FORM = entry.Form(
  'crossed',
  'any settings by any other, also correction and server_optimizer, by their names in papers. If'
  ' the columns are numbers, the figure has a line for each row. AdaBest has a table of'
  ' participation and heterogeneity by algorithm, on the test data: rows are'
  ' participation,task,task_option, columns are algorithm, and the metric is test_accuracy.',
  {'rows': 'algorithm', 'columns': 'tau', 'output': 'results/tau'},
  (
    entry.METRIC,
    entry.Option(
      'rows', 'The settings of the rows of crossed, such as client_schedule,correction.', list
    ),
    entry.COLUMNS,
    entry.WINDOW,
  ),
  _build,
  required=('rows', 'columns'),
  hint='algorithm and tau',
)
