"""The table of a search: its trials, the best first, and failed ones last with their reasons."""

import contextlib
import dataclasses
import itertools
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
  by_label: dict[str, list[study.View]] = {}
  for view in views:
    varied = [f'{name}={value}' for name, value in view.point.items() if name != 'seed']
    label = ', '.join(varied) or 'seeds'
    if not is_grid:
      label = f'trial {view.number}: {label}'
    by_label.setdefault(label, []).append(view)
  return by_label


def rank(rows: Rows, plan: plan_lib.Plan) -> tuple[report.Table, str | None] | None:
  """Reads the runs, and ranks the rows as reports do, by the metric of the plan.

  Returns:
    A table and the label of the best row (None if no row is done), or None without evaluations.

  Raises:
    ValueError: If no run has values of the metric, or the tasks' metrics differ.
  """
  folders = {label: _folders(row) for label, row in rows.items()}
  begun = {label: list(_read(where, plan.window)) for label, where in folders.items()}
  every = list(itertools.chain.from_iterable(begun.values()))
  if not every:
    return None
  metric = plan.metric or tables.default_metric(every)
  groups: dict[str, list[run_lib.Run]] = {}
  for label, runs in begun.items():
    # With a value after round 0, which is the initial model's.
    evaluated = [run for run in runs if max(run.curve(metric), default=0)]
    if evaluated:
      groups[label] = evaluated
  states = {label: _state(row) for label, row in rows.items()}
  if not groups:
    if 'done' in states.values():
      raise scores.no_values(every[0], metric)
    return None
  order = {
    # By state, and among trials of one state as reports rank settings.
    label: (-STATES.index(states[label]), *scores.rank(groups.get(label, ()), metric))
    for label in rows
  }
  labels = sorted(rows, key=order.__getitem__, reverse=True)
  is_done_and_finite = order[labels[0]][:2] == (0, True)
  best = labels[0] if is_done_and_finite else None

  table = tables.comparison_table(groups, metric, target=plan.target)
  cells = dict(zip(groups, table.rows))
  empty = [''] * len(table.heading)
  texts: list[list[str]] = []
  for label in labels:
    result = _result(rows[label])
    if label == best:
      result = 'best'
    numbers = cells.get(label, empty)[2:]
    texts.append([label, str(len(folders[label])), *numbers, result])
  return report.Table([*table.heading, ''], texts, note=scores.weighting(every)), best


def _folders(row: Sequence['study.View']) -> list[str]:
  """Returns the folders of the runs of a row."""
  folders: list[str] = []
  for view in row:
    folders += [folder for folder, _ in view.folders]
  return folders


def _state(row: Sequence['study.View']) -> str:
  """Returns the worst state of a row's trials."""
  return max((view.state for view in row), key=STATES.index)


def _result(row: Sequence['study.View']) -> str:
  """Returns the state of a row as the table shows it, with the reasons of failures."""
  state = _state(row)
  if state == 'done':
    return ''
  if state not in ('diverged', 'failed'):
    return state
  reasons = [view.reason for view in row if view.state in ('diverged', 'failed')]
  text = f'{state}: {"; ".join(dict.fromkeys(reasons))}'
  if len(reasons) < len(row):
    text = f'{len(reasons)} of {len(row)} {text}'
  return text


def _read(folders: Iterable[str], window: int | None) -> Iterator[run_lib.Run]:
  for folder in folders:
    with contextlib.suppress(ValueError):  # The run has not begun.
      yield dataclasses.replace(run_lib.load_run(folder), window=window)
