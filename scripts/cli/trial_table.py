"""The table of a search: its trials, the best first, what failed last and why."""

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import run as run_lib

from . import command, search

# In the order of the table; 'done' is ranked by the metric.
STATES = ('done', 'running', 'pruned', 'waiting', 'diverged', 'failed')
_MARKS = {'running': 'yellow', 'diverged': 'red', 'failed': 'red', 'waiting': 'dim'}
_MOST_SHOWN = 30  # Rows of the live table.


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


@dataclasses.dataclass(frozen=True)
class Ranked:
  """A row with what its runs have come to: `value` is their mean, None before any."""

  row: Row
  runs: Sequence[run_lib.Run]
  values: Sequence[float]

  @property
  def value(self) -> float | None:
    """The mean over the runs."""
    return sum(self.values) / len(self.values) if self.values else None


def ranked(rows: Sequence[Row], metric: str | None) -> tuple[list[Ranked], str | None]:
  """Reads the runs and returns the rows, the best first, and the metric.

  Args:
    rows: The rows.
    metric: The column of metrics.csv that counts; None: the task's.
  """
  read = [[run for run in map(_read, row.folders) if run is not None] for row in rows]
  if metric is None:
    evaluated = [r for those in read for r in those]
    metric = tables.default_metric(evaluated) if evaluated else None
  found = []
  for row, those in zip(rows, read):
    values = [] if metric is None else [search.value_of(r, metric, _rounds(r)) for r in those]
    found.append(Ranked(row, those, [v for v in values if v is not None]))

  return sorted(found, key=lambda item: _rank(item, metric)), metric


def write(
  path: str, rows: Sequence[Row], metric: str | None = None, target: float | None = None
) -> tuple[str | None, str | None]:
  """Prints the table and writes it.

  Args:
    path: Where to.
    rows: The rows.
    metric: The column of metrics.csv that counts; None: the task's.
    target: If given, the rounds to this value are shown too.

  Returns:
    The label of the best row, if any is done, and the metric, if any run was evaluated.

  Raises:
    ValueError: If no run has values of the metric.
    OSError: If it cannot be written.
  """
  found, metric = ranked(rows, metric)
  if metric is None:
    return None, None
  if not any(item.values for item in found):
    raise ValueError(f'no run has values of {metric!r} in metrics.csv. The runs are saved.')
  text = tables.markdown(*cells(found, metric, target))
  atomic_files.write_text(path, text)
  command.show(text)
  return best(found), metric


def best(found: Sequence[Ranked]) -> str | None:
  """Returns the label of the best row, if any is done."""
  first = found[0] if found else None
  return first.row.label if first and first.row.state == 'done' and first.values else None


def cells(
  found: Sequence[Ranked], metric: str, target: float | None = None
) -> tuple[list[str], list[list[str]]]:
  """Returns the headings and the rows of the table, as texts."""
  name = metric.replace('_', ' ')
  begun = [run for item in found for run in item.runs]
  mean = f'{name}, mean of {scores.last_rounds(begun)}' if begun else f'{name}, mean'
  heading = [
    *('', 'runs', 'rounds', mean, f'{name}, last'),
    *([] if target is None else [f'rounds to {target:g}']),
    *('s a round', ''),
  ]
  rows = []
  for item in found:
    summaries = [run.summary() for run in item.runs]
    reached = [tables.rounds_to(run, metric, target) for run in item.runs if target is not None]
    rounds = sorted({s['rounds'] for s in summaries})
    rows.append(
      [
        _cell(item.row.label),
        str(len(item.row.folders)),
        ' to '.join(map(str, dict.fromkeys([*rounds[:1], *rounds[-1:]]))),
        tables.spread(item.values),
        tables.spread([s['last'].get(metric) for s in summaries]),
        *([] if target is None else [tables.reached(reached)]),
        tables.spread([s['seconds_per_round_median'] for s in summaries], with_deviation=False),
        'best' if item.row.label == best(found) else _cell(_result(item.row)),
      ]
    )
  return heading, rows


class Live:
  """The table in a terminal, brought up to date as runs go on; without one, nothing."""

  def __init__(self) -> None:
    import rich.console
    import rich.live

    self._console = rich.console.Console(file=sys.stderr)
    self._live: Any = None
    if self._console.is_terminal:
      self._live = rich.live.Live(console=self._console, auto_refresh=False, transient=True)

  def __enter__(self) -> 'Live':
    if self._live is not None:
      self._live.start()
    return self

  def __exit__(self, *unused_exception: object) -> None:
    if self._live is not None:
      self._live.stop()

  @property
  def is_shown(self) -> bool:
    """Whether there is a terminal."""
    return self._live is not None

  def say(self, line: str) -> None:
    """Shows a line: above the table, if there is one."""
    if self._live is None:
      command.say(line)
    else:
      self._console.print(command.printable(line), markup=False, highlight=False)

  def show(self, rows: Sequence[Row], metric: str | None, caption: str) -> None:
    """Shows the rows."""
    if self._live is not None:
      self._live.update(picture(rows, metric, caption), refresh=True)


def picture(rows: Sequence[Row], metric: str | None, caption: str) -> Any:
  """Returns the table for a terminal, with fewer columns: what runs and the best of the rest."""
  import rich.markup
  import rich.table

  table = rich.table.Table(caption=caption)
  try:
    found, metric = ranked(rows, metric)
    _, texts = cells(found, metric or '')
  except (ValueError, OSError):  # A run that has just begun, say.
    return table
  table.add_column('', overflow='fold')
  for name in ('rounds', (metric or '').replace('_', ' ')):
    table.add_column(name, justify='right', no_wrap=name == 'rounds')
  table.add_column('', overflow='fold')
  shown = sorted(range(len(found)), key=lambda i: found[i].row.state == 'waiting')[:_MOST_SHOWN]
  for i in sorted(shown):
    style = 'bold green' if texts[i][-1] == 'best' else _MARKS.get(found[i].row.state)
    label, _, rounds, value, *_, result = map(rich.markup.escape, texts[i])
    table.add_row(label, rounds, value, result, style=style)
  return table


def _rank(item: Ranked, metric: str | None) -> tuple[int, float]:
  value = item.value
  if value is None or not math.isfinite(value) or metric is None:
    return STATES.index(item.row.state), math.inf
  return STATES.index(item.row.state), -scores.sign(metric) * value


def _result(row: Row) -> str:
  if row.state == 'done':
    return ''
  if row.state not in ('diverged', 'failed'):
    return row.state
  bad = [state for state in row.states if state in ('diverged', 'failed')]
  count = f'{len(bad)} of {len(row.states)} ' if len(row.states) > len(bad) else ''
  return f'{count}{row.state}: {"; ".join(dict.fromkeys(row.reasons))}'


def _cell(text: str) -> str:
  return command.printable(text.replace('\n', ' '))


def _read(folder: str) -> run_lib.Run | None:
  try:
    return run_lib.load_run(folder)
  except ValueError:
    return None


def _rounds(run: run_lib.Run) -> int:
  return int(run.rows[-1]['round'])
