"""The report that shows a metric's distribution over clients, by algorithm."""

import csv
import glob
import io
import os
from collections.abc import Mapping, Sequence

import numpy as np

from tff_adaptive.reports import (
  client_statistics,
  number_texts,
  report,
  scores,
  style,
  table as table_lib,
)
from tff_adaptive.runs import run as run_lib

FOLDER = 'client_evaluations'
_LOSS = 'validation_loss'  # By which a run has diverged, whatever is measured on clients.
_SHOWN = ('mean', 'std', 'p10', 'p50', 'p90', 'worst_tenth')


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
  values = {
    label: [_of_run(run, metric, clients) for run in members] for label, members in groups.items()
  }
  rows = [
    [label, *(['diverged'] * len(_SHOWN) if _diverged(groups[label]) else _cells(found, metric))]
    for label, found in values.items()
  ]
  members = [run for each in groups.values() for run in each]
  table = table_lib.Table(
    ['', *(name.replace('_', ' ') for name in _SHOWN)],
    rows,
    title=title or f'{metric.replace("_", " ")} over clients ({clients})',
    note=scores.note({}, members),
  )
  drawn = {}
  for label, runs in groups.items():
    text, shown = scores.without_diverged(label, runs, _LOSS)
    drawn[text if _diverged(runs) else label] = [
      found for run, found in zip(runs, values[label]) if run in shown
    ]
  return report.Report([table], _data(drawn), _figure(drawn, metric, title), title)


def _diverged(runs: Sequence[run_lib.Run]) -> bool:
  return any(scores.is_left_out(run, _LOSS) for run in runs)


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
    _check_mean(run, found, int(paths[-1][-10:-4]), f'clients_{clients}_{metric}_mean')
  except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
    raise ValueError(f'{paths[-1]} cannot be used: {error}.') from None
  return found[~np.isnan(found)]


def _check_mean(run: run_lib.Run, values: np.ndarray, number: int, column: str) -> None:
  """ValueError if the mean over clients is not the one in metrics.csv: lines were lost, say."""
  expected = run.curve(column).get(number)
  there = values[~np.isnan(values)]
  if expected is None or not len(there):
    return
  with np.errstate(all='ignore'):
    if not np.isclose(there.mean(), expected, rtol=1e-6, atol=1e-9, equal_nan=True):
      raise ValueError(
        f'the mean of its {len(there)} clients is {there.mean():.6g}, in metrics.csv it is '
        f'{expected:.6g}: bring back a copy of the file'
      )


def _cells(found: Sequence[np.ndarray], metric: str) -> list[str]:
  """Each statistic: its mean over runs, and what they differ by."""
  own = metric.removeprefix('inference_').removeprefix('personalized_')
  each = [client_statistics.describe(np.stack([v, np.ones_like(v)], 1), own) for v in found]
  cells = []
  for name in _SHOWN:
    numbers = np.array([statistics[name] for statistics in each])
    deviation = float(numbers.std(ddof=1)) if len(numbers) > 1 else None
    cells.append(number_texts.mean(float(numbers.mean()), 4, deviation))
  return cells


def _data(values: Mapping[str, Sequence[np.ndarray]]) -> str:
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(['label', 'value', 'share_of_clients'])
  for label, found in values.items():
    ordered = np.sort(np.concatenate(found))
    for i, value in enumerate(ordered, 1):
      writer.writerow([label, f'{value:.6g}', f'{i / len(ordered):.6g}'])
  return text.getvalue()


def _figure(values: Mapping[str, Sequence[np.ndarray]], metric: str, title: str) -> object:
  figure, ((axes,),) = style.figure(1, 1)
  lines = []
  for number, (label, found) in enumerate(values.items()):
    ordered = np.sort(np.concatenate(found))
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    lines += axes.step(ordered, shares, where='post', label=label, **style.line(number))
  axes.set(xlabel=metric.replace('_', ' '), ylabel='share of clients at or below', ylim=(0, 1))
  axes.grid(alpha=0.3)
  style.legend(figure, lines, list(values))
  style.title(figure, title)
  return figure
