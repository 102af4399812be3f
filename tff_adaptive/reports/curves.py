"""Curves over repetitions: their mean and deviation, along rounds, bytes or seconds."""

import csv
import dataclasses
import io
from collections.abc import Mapping, Sequence

import numpy as np

from tff_adaptive.reports import scores
from tff_adaptive.runs import run as run_lib


@dataclasses.dataclass(frozen=True)
class Curve:
  """The mean curve of the runs of a group that did not diverge; of all, where all did.

  Attributes:
    label: The group, how many runs that is, and where it ends if some of them go on.
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
  groups: Mapping[str, Sequence[run_lib.Run]], column: str, axis: str = 'round'
) -> list[Curve]:
  """Returns the curves of groups of runs, in the order of the groups.

  Args:
    groups: Label -> runs that differ in their seed.
    column: A column of metrics.csv.
    axis: What they run along; a name in `runs.run.AXES`.

  Raises:
    ValueError: If no run has values of the column, or one has none of the axis.
  """
  made = [_curve(label, members, column, axis) for label, members in groups.items()]
  found = [curve for curve in made if curve is not None]
  if not found:
    raise ValueError(f'no run has values of {column!r} in metrics.csv.')
  return found


def _curve(label: str, members: Sequence[run_lib.Run], column: str, axis: str) -> Curve | None:
  """The curve of one group; None if its runs have no round with a value in common."""
  text, shown = scores.without_diverged(label, members, column)
  rounds, mean, std = mean_curve(shown, column)
  if not len(rounds):
    return None
  places = [run.progress(axis) for run in shown]
  x = np.mean([[place[t] for t in rounds.tolist()] for place in places], axis=0)
  if _ending_early(shown, column):
    text += f', to round {rounds[-1]}'
  diverged = scores.is_left_out(shown[0], column)
  improved = scores.sign(column) * (mean[-1] - mean[0]) > 0 or len(mean) == 1
  learned = not diverged and (improved or not scores.has_direction(column))
  return Curve(text, rounds, x, mean, std, diverged, learned)


def note(groups: Mapping[str, Sequence[run_lib.Run]], column: str) -> str:
  """Says which curves end before some of their runs do, and where; '' if none does."""
  found = []
  for label, members in groups.items():
    _, shown = scores.without_diverged(label, members, column)
    rounds, _, _ = mean_curve(shown, column)
    short = _ending_early(shown, column)
    if not len(rounds):
      found.append(f'{label} has no curve: its runs have no round with {column} in common.')
    elif short:
      others = f' and {len(short) - 1} more' if len(short) > 1 else ''
      found.append(
        f'The curve of {label} ends at round {rounds[-1]}, the last that all its runs have, because'
        f' of {short[0].folder}{others}.'
      )
  return ' '.join(found)


def _ending_early(members: Sequence[run_lib.Run], column: str) -> list[run_lib.Run]:
  """Those of the runs whose last value is of an earlier round than that of others."""
  ends = [max(run.curve(column), default=0) for run in members]
  return [run for run, end in zip(members, ends) if end < max(ends)]


def mean_curve(
  members: Sequence[run_lib.Run], column: str
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
  groups: Mapping[str, Sequence[run_lib.Run]], columns: Sequence[str], axis: str = 'round'
) -> str:
  """Returns the numbers behind a figure of curves as CSV.

  Args:
    groups: Label -> runs that differ in their seed.
    columns: Columns of metrics.csv.
    axis: What the curves run along; a name in `runs.run.AXES`.

  Returns:
    A row for each group and each round at which all columns were measured in all its runs: the
    label, the round, the axis if it is another, and of each column the mean and the sample
    standard deviation over the runs that did not diverge; where all did, over all, and the label
    says so.
  """
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  along = [] if axis == 'round' else [axis]
  names = [f'{c}_{kind}' for c in columns for kind in ('mean', 'std')]
  writer.writerow(['label', 'round', *along, *names])
  for label, members in groups.items():
    made = [_curve(label, members, column, axis) for column in columns]
    curves = [curve for curve in made if curve is not None]
    if len(curves) < len(columns):
      continue
    shown = f'{label} (diverged)' if any(curve.diverged for curve in curves) else label
    points = [
      dict(zip(c.rounds.tolist(), zip(c.x.tolist(), c.mean.tolist(), c.std.tolist())))
      for c in curves
    ]
    for t in sorted(set.intersection(*map(set, points))):
      place = [points[0][t][0]] if along else []
      values = [v for point in points for v in point[t][1:]]
      writer.writerow([shown, t, *(f'{v:.6g}' for v in [*place, *values])])
  return text.getvalue()
