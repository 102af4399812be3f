"""The form that shows a metric by client and server learning rate."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive.reports import report, tuning
from tff_adaptive.reports.forms import entry


def _build(runs: entry.Runs, given: Mapping[str, Any], title: str) -> report.Report:
  metric = entry.metric_of(runs, given)
  return tuning.by_rates(runs, metric, label_by=given['label_by'] or None, title=title)


FORM = entry.Form(
  'rates',
  'maps by client and server rate, one for each optimizer, as in "Adaptive Federated Optimization",'
  ' and a table of the best server rate by client rate.',
  {'output': 'results/rates', 'formats': 'md,png,pdf,html'},
  (entry.METRIC, entry.LABEL_BY, entry.WINDOW),
  _build,
)
