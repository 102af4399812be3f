"""The table of a search: its trials, the best first, and failed ones last with their reasons."""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tff_adaptive.reports import report, scores, tables
from tff_adaptive.runs import run as run_lib

from . import plan as plan_lib

if TYPE_CHECKING:
  from . import study

# In the order of the table. Rows of the same state are ranked by the metric.
STATES = ('done', 'running', 'pruned', 'waiting', 'diverged', 'failed')
Rows = Mapping[str, Sequence['study.View']]  # The trials with equal values, by label.


def rows(views: Iterable['study.View'], is_grid: bool) -> Rows:
  """Returns each row's trials by label. A grid's trials that differ only in seed share a row."""
  found: dict[str, list[study.View]] = {}
  for view in views:
    varied = ', '.join(f'{n}={value}' for n, value in view.point.items() if n != 'seed')
    number = '' if is_grid else f'trial {view.number}: '
    found.setdefault(number + (varied or 'seeds'), []).append(view)
  return found


def rank(rows: Rows, plan: plan_lib.Plan) -> tuple[report.Table, str | None] | None:
  """Reads the runs, and ranks the rows as reports do, by the metric of the plan.

  Returns:
    A table and the label of the best row (None if no row is done), or None without evaluations.

  Raises:
    ValueError: If no run has values of the metric, or the tasks' metrics differ.
  """
  folders = {label: [f for view in row for f, _ in view.folders] for label, row in rows.items()}
  begun = {label: [*_read(where, plan.window)] for label, where in folders.items()}
  states = {label: _state(row) for label, row in rows.items()}
  if not (every := [run for runs in begun.values() for run in runs]):
    return None
  metric = plan.metric or tables.default_metric(every)
  evaluated = {
    label: [r for r in runs if max(r.curve(metric), default=0)] for label, runs in begun.items()
  }
  groups = {label: runs for label, runs in evaluated.items() if runs}
  if not groups:
    if 'done' in states.values():
      raise scores.no_values(every[0], metric)
    return None
  table = tables.comparison_table(groups, metric, target=plan.target)
  cells = dict(zip(groups, table.rows))

  ranks = {
    label: (-STATES.index(states[label]), *scores.rank(groups.get(label, ()), metric))
    for label in rows
  }
  ordered = sorted(rows, key=ranks.__getitem__, reverse=True)
  best = ordered[0] if ranks[ordered[0]][:2] == (0, True) else None
  empty = [''] * len(table.heading)
  texts = [
    [
      label,
      str(len(folders[label])),
      *cells.get(label, empty)[2:],
      'best' if label == best else _result(rows[label]),
    ]
    for label in ordered
  ]
  return report.Table([*table.heading, ''], texts, note=scores.weighting(every)), best


def _state(row: Sequence['study.View']) -> str:
  """Returns the worst state of a row's trials."""
  return max((view.state for view in row), key=STATES.index)


def _result(row: Sequence['study.View']) -> str:
  """Returns the state of a row as the table shows it, with the reasons of failures."""
  if (state := _state(row)) not in ('diverged', 'failed'):
    return '' if state == 'done' else state
  bad = [view.reason for view in row if view.state in ('diverged', 'failed')]
  count = f'{len(bad)} of {len(row)} ' if len(row) > len(bad) else ''
  return f'{count}{state}: {"; ".join(dict.fromkeys(bad))}'


def _read(folders: Iterable[str], window: int | None) -> Iterator[run_lib.Run]:
  for folder in folders:
    with contextlib.suppress(ValueError):  # The run has not begun.
      yield dataclasses.replace(run_lib.load_run(folder), window=window)
