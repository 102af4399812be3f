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
_LOCAL = 'local_'  # The prefix of metrics of models that each client trained alone.


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
  with np.errstate(all='ignore'):  # Values of a diverged model may be infinite.
    numerator, denominator = np.sum(sums, axis=0)
    return describe_values(of_clients(sums), metric, numerator / denominator)


def describe_values(values: np.ndarray, metric: str, by_examples: float) -> dict[str, float]:
  """Returns statistics of a metric over clients.

  Args:
    values: float64 [clients], each client's value. Clients whose value is NaN, because the metric
      is not defined for them, are left out.
    metric: The metric's name, which says whether small values are good; see `runs.names`.
    by_examples: The value on the examples of all clients.

  Returns:
    The values by name in `STATISTICS`, as in `describe`.
  """
  values = values[~np.isnan(values)]
  if not len(values):
    return dict.fromkeys(STATISTICS, float('nan'))
  with np.errstate(all='ignore'):  # Values of a diverged model may be infinite.
    worst_first = np.sort(values)
    if names.is_error(metric):
      worst_first = worst_first[::-1]
    # Rounded up, so that it is at least one client.
    worst = worst_first[: -(-len(values) // 10)]
    numbers = (
      by_examples,
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


def evaluated_clients(run: run_lib.Run) -> list[str]:
  """Returns the ids of the clients in a run's last evaluation by client; [] if there is none."""
  every = _files(run)
  if not every:
    return []
  with open(every[-1], encoding='utf-8', newline='') as file:
    return [line['client'] for line in csv.DictReader(file)]


def build(
  groups: Mapping[str, Sequence[run_lib.Run]], metric: str, clients: str, *, title: str = ''
) -> report.Report:
  """Reports the distribution of a metric over clients, from the last evaluation of each run.

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    metric: A metric by client, such as accuracy, inference_accuracy, personalized_accuracy,
      own_accuracy, of a client's own model, or local_accuracy, of one that it trained alone.
    clients: The group of clients: 'train', 'heldout', 'unseen' or 'test'.
    title: The title of the figure.

  Returns:
    A report. Its table has the mean and sample standard deviation over runs of each statistic, or
    'diverged' if one of the runs did. Its figure has the share of clients at or below each value,
    over the runs of a label that did not diverge, or over all if all diverged. The note says for
    how many clients the metric is not defined and, if clients trained alone too, how many gain.

  Raises:
    ValueError: If a run's evaluation by client is missing or damaged, or lacks the group or metric.
  """
  rows: list[list[str]] = []
  notes: list[str] = []
  data: list[list[Any]] = []
  drawn: list[figures.Curve] = []
  for label, members in groups.items():
    values = {}
    num_undefined = 0
    gains: list[bool] = []
    for run in members:
      by_client = _of_run(run, metric, clients)
      is_defined = ~np.isnan(by_client)
      num_undefined += int((~is_defined).sum())
      values[run.folder] = by_client[is_defined]
      gains += _gains(run, metric, clients, by_client)
    if num_undefined:
      notes.append(f'{label}: not defined for {num_undefined} clients, which are left out.')
    if gains:
      notes.append(
        f'{label}: {sum(gains)} of {len(gains)} clients have a better {metric} than alone'
        f' ({_LOCAL}{_plain(metric)}).'
      )
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
      # The share rises at each value, and is level to the next one.
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
    note=' '.join(filter(None, [scores.note({}, all_runs), *notes])),
  )
  task = scores.data_of(run.shown for run in all_runs)
  text = report.csv_text([['label', 'value', 'share_of_clients'], *data])
  figure = figures.comparison(
    {'share of clients at or below': drawn},
    axis=metric.replace('_', ' '),
    title=title or ': '.join(filter(None, (task, group_title))),
  )
  return report.Report([table], text, figure, title)


def _files(run: run_lib.Run) -> list[str]:
  """Returns the paths of a run's evaluations by client, in the order of the rounds."""
  return sorted(glob.glob(os.path.join(glob.escape(run.folder), FOLDER, 'round_*.csv')))


def _of_run(run: run_lib.Run, metric: str, clients: str) -> np.ndarray:
  """Returns the metric of each client in a group, NaN for a client for which it is not defined."""
  last = f'round_{int(run.rows[-1]["round"]):06d}.csv'  # A run in progress may have later ones.
  every = _files(run)
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
    return np.array([float(line[metric]) for line in lines])
  except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
    raise ValueError(f'{paths[-1]} cannot be used: {error}.') from None


def _plain(metric: str) -> str:
  """Returns a metric's name without the prefix that says of which model it is."""
  for prefix in ('inference_', 'personalized_', 'own_', _LOCAL):
    metric = metric.removeprefix(prefix)
  return metric


def _gains(run: run_lib.Run, metric: str, clients: str, by_client: np.ndarray) -> list[bool]:
  """Returns whether each client has a better value than after training alone; [] if not known."""
  if metric.startswith(_LOCAL):
    return []
  try:
    alone = _of_run(run, _LOCAL + _plain(metric), clients)
  except ValueError:
    return []  # The run has no such baseline.
  sign = scores.sign(metric)
  is_known = ~np.isnan(by_client) & ~np.isnan(alone)
  gains: list[bool] = (sign * by_client > sign * alone)[is_known].tolist()
  return gains


def _cells(of_runs: Sequence[np.ndarray], metric: str) -> list[str]:
  """Formats the mean and standard deviation over runs of each statistic."""
  plain = _plain(metric)
  statistics = []
  # Each client counts the same here, so that denominators are 1.
  for values in of_runs:
    statistics.append(describe(np.stack([values, np.ones_like(values)], 1), plain))
  cells = []
  for name in _REPORTED:
    cells.append(report.spread([of_run[name] for of_run in statistics]))
  return cells
