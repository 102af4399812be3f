"""The distribution of a metric over clients: its statistics, and a report on groups of runs."""

import csv
import glob
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import figures, report, scores
from tff_adaptive.runs import names, run as run_lib

FOLDER = 'client_evaluations'  # In a run's folder.
_LOSS = 'validation_loss'  # Decides whether a run has diverged, for every metric.
STATISTICS = ('by_examples', 'mean', 'std', 'p10', 'p50', 'p90', 'worst_tenth')
_REPORTED = STATISTICS[1:]


def describe(sums: np.ndarray, metric: str) -> dict[str, float]:
  """Returns statistics of a metric over clients.

  Args:
    sums: float64 [clients, 2], numerator and denominator of each client's metric. The denominator
      is the client's number of examples or, say, words. Clients with denominator 0 are left out.
    metric: The metric's name, which says whether small values are good; see `runs.names`.

  Returns:
    The values by name in `STATISTICS`: the mean over all examples, the mean over clients, the
    (population) standard deviation over clients, percentiles with linear interpolation, and the
    mean over the tenth of the clients (rounded up) with the worst values. NaN without clients.
  """
  values = of_clients(sums)
  values = values[~np.isnan(values)]
  if not len(values):
    return dict.fromkeys(STATISTICS, float('nan'))
  with np.errstate(all='ignore'):  # Values of a diverged model may be infinite.
    worst_first = np.sort(values)
    if names.is_error(metric):
      worst_first = worst_first[::-1]
    worst = worst_first[: -(-len(values) // 10)]
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
  """Returns each client's metric, float64 [clients]; NaN for denominator 0. See `describe`."""
  with np.errstate(all='ignore'):
    return np.where(sums[:, 1] != 0, sums[:, 0] / sums[:, 1], np.nan)


def build(
  groups: Mapping[str, Sequence[run_lib.Run]], metric: str, clients: str, *, title: str = ''
) -> report.Report:
  """Reports the distribution of a metric over clients, from the last evaluation of each run.

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    metric: A metric by client, such as accuracy, inference_accuracy, personalized_accuracy or
      own_accuracy, of a client's own model.
    clients: The group of clients: 'train', 'heldout', 'unseen' or 'test'.
    title: The title of the figure.

  Returns:
    A report. Its table has the mean and sample standard deviation over runs of each statistic, or
    'diverged' if one of the runs did. Its figure has the share of clients at or below each value,
    over the runs of a label that did not diverge, or over all if all diverged.

  Raises:
    ValueError: If a run's evaluation by client is missing or damaged, or lacks the group or metric.
  """
  rows: list[list[str]] = []
  data: list[list[Any]] = []
  drawn: list[figures.Curve] = []
  for label, members in groups.items():
    values = {run.folder: _of_run(run, metric, clients) for run in members}
    text, drawn_runs = scores.without_diverged(label, members, _LOSS)
    # A mean over runs of which one diverged would say nothing.
    if any(scores.has_diverged(run, _LOSS) for run in members):
      cells = ['diverged'] * len(_REPORTED)
    else:
      cells = _cells(list(values.values()), metric)
      text = label
    rows.append([label, *cells])
    ordered = np.sort(np.concatenate([values[run.folder] for run in drawn_runs]))
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    if len(ordered):
      # Steps, from 0.
      x = np.repeat(ordered, 2)
      y = np.repeat([0.0, *shares], 2)[1:-1]
      drawn.append(figures.Curve(text, text, y, x, y, np.zeros_like(y)))
    data += [[text, *point] for point in zip(ordered, shares)]
  all_runs = list(itertools.chain.from_iterable(groups.values()))
  group_title = f'{metric.replace("_", " ")} over clients ({clients})'
  table = report.Table(
    ['', *(name.replace('_', ' ') for name in _REPORTED)],
    rows,
    title=title or group_title,
    note=scores.note({}, all_runs),
  )
  task = scores.data_of(run.shown for run in all_runs)
  text = report.csv_text([['label', 'value', 'share_of_clients'], *data])
  figure = figures.comparison(
    {'share of clients at or below': drawn},
    axis=metric.replace('_', ' '),
    title=title or ': '.join(filter(None, (task, group_title))),
  )
  return report.Report([table], text, figure, title)


def _of_run(run: run_lib.Run, metric: str, clients: str) -> np.ndarray:
  """Returns the metric of each client in a group, without clients that have no value."""
  last = f'round_{int(run.rows[-1]["round"]):06d}.csv'  # A run in progress may have later ones.
  every = sorted(glob.glob(os.path.join(glob.escape(run.folder), FOLDER, 'round_*.csv')))
  paths = [path for path in every if os.path.basename(path) <= last]
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
    values = np.array([float(line[metric]) for line in lines])
  except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
    raise ValueError(f'{paths[-1]} cannot be used: {error}.') from None
  return values[~np.isnan(values)]


def _cells(of_runs: Sequence[np.ndarray], metric: str) -> list[str]:
  """Formats the mean and standard deviation over runs of each statistic."""
  plain = metric
  for prefix in ('inference_', 'personalized_', 'own_'):
    plain = plain.removeprefix(prefix)
  statistics = []
  # Each client counts the same here, so that denominators are 1.
  for values in of_runs:
    statistics.append(describe(np.stack([values, np.ones_like(values)], 1), plain))
  cells = []
  for name in _REPORTED:
    cells.append(report.spread([of_run[name] for of_run in statistics]))
  return cells
