"""The table of a search: its trials, the best first, what failed last and why."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tff_adaptive.reports import scores, table as table_lib, tables
from tff_adaptive.runs import run as run_lib

from . import command

if TYPE_CHECKING:
  from . import study

# In the order of the table; 'done' is ranked by the metric.
STATES = ('done', 'running', 'pruned', 'waiting', 'diverged', 'failed')
_MARKS = {'best': 'bold green', 'running': 'yellow', 'waiting': 'dim'}


@dataclasses.dataclass(frozen=True)
class Row:
  """Trials that differ in their seed only, or one.

  Attributes:
    label: What is varied, and how.
    folders: Of the runs, begun or not.
    states: Of the trials: as of `study.View`.
    reasons: Why some diverged or failed.
  """

  label: str
  folders: Sequence[str]
  states: Sequence[str]
  reasons: Sequence[str] = ()

  @property
  def state(self) -> str:
    """The worst: of a row that is still at work, that."""
    if {'running', 'waiting'} & {*self.states} and {*self.states} != {'waiting'}:
      return 'running'
    return max(self.states, key=STATES.index)

  @property
  def result(self) -> str:
    """What the table says of the state."""
    if self.state not in ('diverged', 'failed'):
      return '' if self.state == 'done' else self.state
    bad = [state for state in self.states if state in ('diverged', 'failed')]
    count = f'{len(bad)} of {len(self.states)} ' if len(self.states) > len(bad) else ''
    return f'{count}{self.state}: {"; ".join(dict.fromkeys(self.reasons))}'


def rows(views: Iterable['study.View'], is_grid: bool) -> list[Row]:
  """Returns trials as rows: those of a grid that differ in their seed only are one."""
  groups: dict[str, list[study.View]] = {}
  for view in views:
    varied = ', '.join(f'{n}={value}' for n, value in view.point.items() if n != 'seed')
    number = '' if is_grid else f'trial {view.number}: '
    groups.setdefault(number + (varied or 'seeds'), []).append(view)
  return [
    Row(
      label,
      [folder for view in members for folder, _ in view.folders],
      [view.state for view in members],
      [view.reason for view in members if view.reason],
    )
    for label, members in groups.items()
  ]


@dataclasses.dataclass(frozen=True)
class Ranking:
  """Rows in the order of the table.

  Attributes:
    table: The table.
    rows: Its rows.
    metric: By which they are ranked.
    best: The label of the best row, if any is done.
  """

  table: table_lib.Table
  rows: Sequence[Row]
  metric: str
  best: str | None


def rank(
  rows: Sequence[Row], metric: str | None = None, target: float | None = None
) -> Ranking | None:
  """Reads the runs and ranks the rows as reports do; None before any run has been evaluated.

  Args:
    rows: The rows.
    metric: The column of metrics.csv that counts; None: the task's.
    target: If given, the rounds to this value are shown too.

  Raises:
    ValueError: If no run has values of the metric, or the tasks' metrics differ.
  """
  begun = {row.label: [r for r in map(_read, row.folders) if r is not None] for row in rows}
  every = [run for runs in begun.values() for run in runs]
  if not every:
    return None
  metric = metric or tables.default_metric(every)
  groups = {label: [r for r in runs if r.curve(metric)] for label, runs in begun.items()}
  groups = {label: runs for label, runs in groups.items() if runs}
  if not any(t > 0 for runs in groups.values() for run in runs for t in run.curve(metric)):
    if any(row.state == 'done' for row in rows):
      raise scores.no_values(every[0], metric)
    return None
  table = tables.comparison_table(groups, metric, target=target)
  cells = dict(zip(groups, table.rows))

  def key(row: Row) -> tuple[int, float]:
    values = [scores.mean_of_last(run, metric) for run in groups.get(row.label, ())]
    known = [value for value in values if value is not None]
    worth = -scores.sign(metric) * sum(known) / len(known) if known else math.nan
    return STATES.index(row.state), worth if math.isfinite(worth) else math.inf

  ordered = sorted(rows, key=key)
  is_best = ordered[0].state == 'done' and math.isfinite(key(ordered[0])[1])
  best = ordered[0].label if is_best else None
  empty = [''] * len(table.heading)
  texts = [
    [
      command.printable(row.label),
      str(len(row.folders)),
      *cells.get(row.label, empty)[2:],
      'best' if row.label == best else command.printable(row.result),
    ]
    for row in ordered
  ]
  return Ranking(table_lib.Table([*table.heading, ''], texts), ordered, metric, best)


def picture(rows: Sequence[Row], metric: str | None, caption: str) -> Any:
  """Returns the table for a terminal: what runs and the best of the rest."""
  import rich.markup
  import rich.table

  shown = rich.table.Table(caption=caption)
  try:
    found = rank(rows, metric)
  except (ValueError, OSError):  # A run that has just begun, say.
    found = None
  if found is None:
    return shown
  for name in found.table.heading:
    shown.add_column(name, overflow='fold')
  for texts in found.table.rows:
    style = _MARKS.get(texts[-1], 'red' if ': ' in texts[-1] else None)
    shown.add_row(*map(rich.markup.escape, texts), style=style)
  return shown


def _read(folder: str) -> run_lib.Run | None:
  try:
    return run_lib.load_run(folder)
  except ValueError:
    return None
