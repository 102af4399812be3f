"""The form that shows tasks by optimizers, beside published values."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive.reports import cross_tables, report
from tff_adaptive.reports.forms import entry


def _build(runs: entry.Runs, given: Mapping[str, Any], title: str) -> report.Report:
  del given
  return cross_tables.tasks(runs, title=title)


FORM = entry.Form(
  'tasks',
  "tasks by optimizers, the best in bold; with the benchmark's data also the paper's figures.",
  {'output': 'results/table', 'formats': 'md,tex'},
  (entry.WINDOW,),
  _build,
)
