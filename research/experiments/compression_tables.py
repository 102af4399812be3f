"""The tables and the figure of the experiment on compression."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tff_adaptive.reports import style

from . import frame

_NONE = 'none'
_CLOSE = 0.5  # Points of accuracy.


def parts(table: pd.DataFrame, target: float) -> list[str]:
  """Returns the sections of RESULTS.md between the introduction and the origin.

  Args:
    table: The rows of RESULTS.csv.
    target: The accuracy of stage 'clock'.
  """
  sections = []
  for problem, rows in table[table['stage'].isin(['bytes', 'text'])].groupby('problem', sort=False):
    for column, title in (
      ('accuracy', 'after the same rounds'),
      ('accuracy_at_tenth', 'at a tenth of the megabytes that FedAvg sends without compression'),
    ):
      cells = _cells(rows, column, lambda values: _spread(100 * values, '.2f'))
      sections += [f'## {problem}: accuracy in percent {title}\n', frame.table(cells)]
    if (rows['compression'] == _NONE).any():
      sections += _differences(problem, rows)
    sizes = _cells(rows, 'megabytes_up', lambda values: f'{values.mean():,.1f}')
    sections += ['Megabytes that clients send:\n', frame.table(sizes)]
  for problem, rows in table[table['stage'] == 'clock'].groupby('problem', sort=False):
    how = rows['server'] + ', ' + rows['uplink'].astype(str)
    cells = _cells(rows.assign(method=how), 'seconds', _median)
    sections.append(f'## {problem}: virtual seconds to {target:g} by uplink in Mbit/s, FedAvg\n')
    sections.append(frame.table(cells))
  return sections


def _cells(rows: pd.DataFrame, column: str, summarize: Any) -> pd.DataFrame:
  """Returns a column's summaries over seeds by compression and method, in the order of the rows."""
  by_pair = rows.groupby(['compression', 'method'], sort=False)[column].agg(summarize)
  wide = by_pair.unstack(fill_value='')
  return wide.loc[rows['compression'].unique(), rows['method'].unique()]


def _differences(problem: str, rows: pd.DataFrame) -> list[str]:
  """Returns the table of points gained beside no compression, seed by seed, and who is close."""
  pairs = with_differences(rows)
  compressed = pairs[pairs['compression'] != _NONE]
  cells = _cells(compressed, 'points', lambda values: _spread(values, '+.2f'))
  close = []
  for compression, of_compression in compressed.groupby('compression', sort=False):
    means = of_compression.groupby('method')['points'].agg(lambda values: values.mean(skipna=False))
    close.append(f'{compression} {(means >= -_CLOSE).sum()} of {len(means)}')
  title = f'## {problem}: points of accuracy beside the same algorithm without compression\n'
  words = f"""
    After the same rounds, seed by seed. Algorithms that lose half a point or less in the mean:
    {'; '.join(close)}."""
  return [title, frame.table(cells), frame.paragraph(words)]


def with_differences(rows: pd.DataFrame) -> pd.DataFrame:
  """Returns the rows of a problem with `points`: 100 times the accuracy less that of `none`."""
  keys = ['method', 'seed']
  dense = rows[rows['compression'] == _NONE].set_index(keys)['accuracy'].rename('dense')
  pairs = rows.join(dense, on=keys)
  return pairs.assign(points=100 * (pairs['accuracy'] - pairs['dense']))


def _spread(values: pd.Series, form: str) -> str:
  """Formats mean and standard deviation of the runs that did not diverge; (k/n) if some did."""
  finite = values[np.isfinite(values)]
  of_all = f' ({len(finite)}/{len(values)})' if len(finite) < len(values) else ''
  if not len(finite):
    return f'-{of_all}'
  mean = f'{finite.mean():{form}}'
  if len(finite) > 1:
    mean += f' ± {finite.std(ddof=1):.2f}'
  return mean + of_all


def _median(seconds: pd.Series) -> str:
  """The median of the seeds that reached the target; a dash for none."""
  reached = seconds[np.isfinite(seconds)]
  if len(reached):
    return f'{reached.median():,.0f}'
  return '-'


def draw(path: str, table: pd.DataFrame) -> None:
  """Writes the figure: accuracy over the megabytes that clients sent, a line for a compression.

  A row has a panel for each algorithm. A line goes from the accuracy at a tenth of what FedAvg
  sends without compression to that of the last round. Who sends less than this tenth in all rounds
  has one point. Bars are standard deviations over seeds.
  """
  rows = table[table['stage'].isin(['bytes', 'text'])]
  problems = list(rows['problem'].unique())
  compressions = list(rows['compression'].unique())
  columns = max(rows[rows['problem'] == problem]['method'].nunique() for problem in problems)
  picture, grid = style.figure(len(problems), columns, width=2.6, height=2.6)
  handles: dict[str, Any] = {}
  for panels, problem in zip(grid, problems):
    of_problem = rows[rows['problem'] == problem]
    methods = of_problem['method'].unique()
    for axes, method in zip(panels, methods):
      of_method = of_problem[of_problem['method'] == method]
      for compression in of_method['compression'].unique():
        runs = of_method[of_method['compression'] == compression]
        line = _line(runs, _tenth(of_problem))
        if line:
          drawn = axes.errorbar(**line, **_look(compressions.index(compression)))
          handles.setdefault(compression, drawn)
      axes.set_xscale('log')
      axes.xaxis.set_minor_formatter('')  # Labels between powers of ten would overlap.
      axes.set_title(f'{problem}: {method}', fontsize=8)
      axes.tick_params(labelsize=7)
      axes.set_xlabel('megabytes sent by clients', fontsize=8)
    panels[0].set_ylabel('accuracy in percent', fontsize=8)
    for axes in panels[len(methods) :]:
      axes.set_axis_off()
  in_order = [compression for compression in compressions if compression in handles]
  style.legend(picture, [handles[compression] for compression in in_order], in_order)
  style.write(picture, path)


def _tenth(rows: pd.DataFrame) -> float:
  """Returns a tenth of the megabytes of an algorithm without compression that sends updates only.

  That is FedAvg or DiLoCo; NaN without such a run.
  """
  return float(rows[rows['compression'] == _NONE]['megabytes_up'].min()) / 10


def _line(runs: pd.DataFrame, tenth: float) -> Mapping[str, Sequence[float]]:
  """Returns the points of a compression's line, and their deviations; {} if all runs diverged."""
  finite = runs[np.isfinite(runs['accuracy'])]
  if not len(finite):
    return {}
  megabytes = [finite['megabytes_up'].mean()]
  columns = ['accuracy']
  if megabytes[0] > tenth and np.isfinite(finite['accuracy_at_tenth']).all():
    megabytes.insert(0, tenth)
    columns.insert(0, 'accuracy_at_tenth')
  accuracies = 100 * finite[columns]
  return {
    'x': megabytes,
    'y': list(accuracies.mean()),
    'yerr': list(accuracies.std(ddof=1).fillna(0.0)),  # One seed has none.
  }


def _look(number: int) -> dict[str, Any]:
  """Returns matplotlib's properties of a compression's line; those after the first are hollow."""
  look = style.marked(number)
  if number >= len(style.MARKERS):
    look['markerfacecolor'] = 'white'
  return {**look, 'elinewidth': 0.8}
