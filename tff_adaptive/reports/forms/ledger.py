"""The form that shows who took part, how far clients drift, and who diverged."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive.reports import client_ledger, report
from tff_adaptive.reports.forms import entry
from tff_adaptive.runs import groups as groups_lib


def _build(runs: entry.Runs, given: Mapping[str, Any], title: str) -> report.Report:
  groups = groups_lib.group(runs, given['label_by'] or None)
  return client_ledger.build(groups, given['top'] or 5, title)


FORM = entry.Form(
  'ledger',
  'who took part and what became of updates, how far clients drift, and who diverged or sends the'
  ' largest updates, of runs with a ledger.',
  {'top': '10', 'output': 'results/ledger'},
  (
    entry.LABEL_BY,
    entry.Option('top', 'How many clients that stand out the form ledger lists. Default: 5.', int),
  ),
  _build,
  takes_unevaluated=True,
)
