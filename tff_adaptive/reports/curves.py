"""Curves over repetitions: their mean and deviation, along rounds, bytes or seconds."""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence

import numpy as np

from tff_adaptive.reports import runs as runs_lib
from tff_adaptive.reports import scores


@dataclasses.dataclass(frozen=True)
class Curve:
  """The mean curve of the runs of a group that did not diverge; of all, where all did.

  Attributes:
    label: The group, and how many runs that is.
    rounds: int [R], the rounds that all of them have.
    x: float64 [R], how far they were after these, in units of the axis: means over the runs.
    mean: float64 [R].
    std: float64 [R], sample standard deviation over the runs; 0 for one.
    diverged: Whether all of its runs did.
    learned: Whether they did not and, where it is known what is good, it ends better than it began.
  """

  label: str
  rounds: np.ndarray
  x: np.ndarray
  mean: np.ndarray
  std: np.ndarray
  diverged: bool
  learned: bool


def build(
  groups: Mapping[str, Sequence[runs_lib.Run]], column: str, axis: str = 'round'
) -> list[Curve]:
  """Returns the curves of groups of runs, in the order of the groups.

  Args:
    groups: Label -> runs that differ in their seed.
    column: A column of metrics.csv.
    axis: What they run along; a name in `runs.AXES`.

  Raises:
    ValueError: If no run has values of the column, or one has none of the axis.
  """
  found = []
  for label, members in groups.items():
    healthy = [run for run in members if not scores.has_diverged(run, column)]
    rounds, mean, std = mean_curve(healthy or members, column)
    if not len(rounds):
      continue
    places = [run.progress(axis) for run in healthy or members]
    x = np.mean([[place[t] for t in rounds.tolist()] for place in places], axis=0)
    text = label if len(members) == 1 else f'{label} (n = {len(members)})'
    if not healthy:
      text = (
        f'{label} (diverged)' if len(members) == 1 else f'{label} (all {len(members)} diverged)'
      )
    elif len(healthy) < len(members):
      text = f'{label} (n = {len(healthy)}, {len(members) - len(healthy)} diverged)'
    improved = scores.sign(column) * (mean[-1] - mean[0]) > 0 or len(mean) == 1
    learned = bool(healthy) and (improved or not scores.has_direction(column))
    found.append(Curve(text, rounds, x, mean, std, not healthy, learned))
  if not found:
    raise ValueError(f'no run has values of {column!r} in metrics.csv.')
  return found


def mean_curve(
  members: Sequence[runs_lib.Run], column: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns the mean and the standard deviation of runs, at the rounds that all of them have.

  Args:
    members: Runs that differ in their seed.
    column: A column of metrics.csv.

  Returns:
    Rounds, int [R]; mean and sample standard deviation (0 for one run), float64 [R].
  """
  curves = [run.curve(column) for run in members]
  rounds = sorted(set.intersection(*(set(curve) for curve in curves)))
  values = np.array([[curve[r] for r in rounds] for curve in curves], np.float64)
  with np.errstate(all='ignore'):  # Of a run that diverged values may be NaN or infinite.
    std = values.std(axis=0, ddof=1) if len(members) > 1 else np.zeros(len(rounds))
    return np.array(rounds, int), values.mean(axis=0), std


def table(
  groups: Mapping[str, Sequence[runs_lib.Run]], columns: Sequence[str], axis: str = 'round'
) -> str:
  """Returns the numbers behind a figure of curves as CSV.

  Args:
    groups: Label -> runs that differ in their seed.
    columns: Columns of metrics.csv.
    axis: What the curves run along; a name in `runs.AXES`.

  Returns:
    A row for each group and each round at which all columns were measured in all its runs: the
    label, the round, the axis if it is another, and of each column the mean and the sample
    standard deviation over the runs that did not diverge.
  """
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  along = [] if axis == 'round' else [axis]
  names = [f'{c}_{kind}' for c in columns for kind in ('mean', 'std')]
  writer.writerow(['label', 'round', *along, *names])
  for label, members in groups.items():
    curves = [build({label: members}, column, axis)[0] for column in columns]
    points = [
      dict(zip(c.rounds.tolist(), zip(c.x.tolist(), c.mean.tolist(), c.std.tolist())))
      for c in curves
    ]
    for t in sorted(set.intersection(*map(set, points))):
      place = [points[0][t][0]] if along else []
      values = [v for point in points for v in point[t][1:]]
      writer.writerow([label, t, *(f'{v:.6g}' for v in [*place, *values])])
  return text.getvalue()
