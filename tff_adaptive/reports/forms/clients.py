"""The form that shows the distribution of a metric over clients."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive.reports import client_distribution, report
from tff_adaptive.reports.forms import entry
from tff_adaptive.runs import groups as groups_lib


def _build(runs: entry.Runs, given: Mapping[str, Any], title: str) -> report.Report:
  groups = groups_lib.group(runs, given['label_by'] or None)
  metric = entry.metric_of(runs, given).removeprefix('validation_')
  return client_distribution.build(groups, metric, given['clients'], title=title)


FORM = entry.Form(
  'clients',
  'the distribution of a metric over clients by algorithm, from the last evaluation by client;'
  ' other metrics are inference_accuracy, personalized_accuracy and own_accuracy.',
  {'clients': 'unseen', 'metric': 'accuracy'},
  (
    entry.METRIC,
    entry.LABEL_BY,
    entry.Option(
      'clients',
      'The clients of the form clients: those that train, on their training examples (train) or on'
      ' their held-out ones (heldout), those that never train (unseen) or have test data (test).',
      default='heldout',
      choices=('train', 'heldout', 'unseen', 'test'),
    ),
  ),
  _build,
  takes_unevaluated=True,
)
