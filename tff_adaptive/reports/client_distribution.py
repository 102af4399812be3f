"""How a metric is distributed over clients: its statistics, and a report by algorithm."""

import csv
import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import report, scores, style
from tff_adaptive.runs import names, run as run_lib

FOLDER = run_lib.CLIENT_EVALUATIONS
_LOSS = 'validation_loss'  # By which a run has diverged, whatever is measured on clients.
STATISTICS = ('by_examples', 'mean', 'std', 'p10', 'p50', 'p90', 'worst_tenth')
_SHOWN = STATISTICS[1:]  # In reports.


def describe(sums: np.ndarray, metric: str) -> dict[str, float]:
  """Describes a metric over clients.

  Args:
    sums: float64 [C, 2], of each client the sum of the metric over its examples and what it is to
      be divided by: their number, or that of their words, say. Clients with nothing to divide by
      are left out.
    metric: Its name, which says whether small values are good: see `runs.names`.

  Returns:
    Name in `STATISTICS` -> value: the mean over all examples together, the mean by client, the
    standard deviation over clients (the population's), percentiles, linear between clients, and the
    mean of the tenth of the clients, rounded up, for which it is worst. NaN without clients.
  """
  values = of_clients(sums)
  values = values[~np.isnan(values)]
  if not len(values):
    return dict.fromkeys(STATISTICS, float('nan'))
  with np.errstate(all='ignore'):  # Of a model that diverged, values may be infinite.
    worst = np.sort(values)[:: -1 if names.is_error(metric) else 1][: -(-len(values) // 10)]
    by_examples, below = np.sum(sums, axis=0)
    numbers = (
      by_examples / below,
      values.mean(),
      values.std(),
      *np.percentile(values, [10, 50, 90]),
      worst.mean(),
    )
  return {name: float(number) for name, number in zip(STATISTICS, numbers)}


def of_clients(sums: np.ndarray) -> np.ndarray:
  """A metric of each client, float64 [C], from sums [C, 2]; NaN where nothing was counted."""
  with np.errstate(all='ignore'):
    return np.where(sums[:, 1] != 0, sums[:, 0] / sums[:, 1], np.nan)


def build(
  groups: Mapping[str, Sequence[run_lib.Run]], metric: str, clients: str, *, title: str = ''
) -> report.Report:
  """Returns the distribution of a metric over clients, from the last evaluation of each run.

  Args:
    groups: Label -> runs that differ in their seed.
    metric: A metric of the files by client: accuracy, inference_accuracy or
      personalized_accuracy, say.
    clients: The group of clients: train, heldout or unseen.
    title: Over the figure.

  Returns:
    A table of the statistics over clients, means over runs and their sample standard deviations, or
    'diverged' where one of the runs did; the shares of clients below each value, those of all runs
    of a label together that did not diverge.

  Raises:
    ValueError: If a run has no such file, group or metric, or its file is damaged.
  """
  rows: list[list[str]] = []
  data: list[list[Any]] = []
  drawn: dict[str, tuple[np.ndarray, np.ndarray]] = {}
  for label, members in groups.items():
    values = {run.folder: _of_run(run, metric, clients) for run in members}
    text, shown = scores.without_diverged(label, members, _LOSS)
    is_diverged = any(scores.is_left_out(run, _LOSS) for run in members)
    cells = ['diverged'] * len(_SHOWN) if is_diverged else _cells([*values.values()], metric)
    rows.append([label, *cells])
    ordered = np.sort(np.concatenate([values[run.folder] for run in shown]))
    points = ordered, np.arange(1, len(ordered) + 1) / len(ordered)
    drawn[text if is_diverged else label] = points
    data += [[text if is_diverged else label, *point] for point in zip(*points)]
  table = report.Table(
    ['', *(name.replace('_', ' ') for name in _SHOWN)],
    rows,
    title=title or f'{metric.replace("_", " ")} over clients ({clients})',
    note=scores.note({}, [run for members in groups.values() for run in members]),
  )
  text = report.csv_text([['label', 'value', 'share_of_clients'], *data])
  return report.Report([table], text, _figure(drawn, metric, title), title)


def _of_run(run: run_lib.Run, metric: str, clients: str) -> np.ndarray:
  """The metric of each client of a group, where it has one."""
  paths = sorted(glob.glob(os.path.join(glob.escape(run.folder), FOLDER, 'round_*.csv')))
  if not paths:
    raise ValueError(f'{run.folder} has no evaluations by client ({FOLDER}/round_....csv).')
  try:
    with open(paths[-1], newline='', encoding='utf-8') as file:
      lines = [line for line in csv.DictReader(file) if line['group'] == clients]
    if not lines:
      raise ValueError(f'it has no clients called {clients!r}')
    if metric not in lines[0]:
      known = ', '.join(list(lines[0])[3:])
      raise ValueError(f'it has no metric {metric!r}, but {known}')
    found = np.array([float(line[metric]) for line in lines])
  except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
    raise ValueError(f'{paths[-1]} cannot be used: {error}.') from None
  return found[~np.isnan(found)]


def _cells(found: Sequence[np.ndarray], metric: str) -> list[str]:
  """Each statistic: its mean over runs, and what they differ by."""
  own = metric.removeprefix('inference_').removeprefix('personalized_')
  each = [describe(np.stack([v, np.ones_like(v)], 1), own) for v in found]
  return [report.spread([of_run[name] for of_run in each]) for name in _SHOWN]


def _figure(drawn: Mapping[str, tuple[np.ndarray, np.ndarray]], metric: str, title: str) -> object:
  figure, ((axes,),) = style.figure(1, 1, title=title)
  lines = []
  for number, (label, points) in enumerate(drawn.items()):
    lines += axes.step(*points, where='post', label=label, **style.line(number))
  axes.set(xlabel=metric.replace('_', ' '), ylabel='share of clients at or below', ylim=(0, 1))
  axes.grid(alpha=0.3)
  style.legend(figure, lines, list(drawn))
  return figure
