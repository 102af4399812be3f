"""Curves over repetitions: their mean and deviation, along rounds, bytes or seconds."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import scores, table as table_lib
from tff_adaptive.runs import run as run_lib


@dataclasses.dataclass(frozen=True)
class Curve:
  """The mean curve of the runs of a group that did not diverge; of all, where all did.

  Attributes:
    group: The group's label.
    label: The same, how many runs that is, and where it ends if some of them go on.
    rounds: int [R], the rounds that all of them have.
    x: float64 [R], how far they were after these, in units of the axis: means over the runs.
    mean: float64 [R].
    std: float64 [R], sample standard deviation over the runs; 0 for one.
    diverged: Whether all of its runs did.
    learned: Whether they did not and, where it is known what is good, it ends better than it began.
    short: The folders of those of the runs that end before others.
  """

  group: str
  label: str
  rounds: np.ndarray
  x: np.ndarray
  mean: np.ndarray
  std: np.ndarray
  diverged: bool
  learned: bool
  short: Sequence[str]


def build(
  groups: Mapping[str, Sequence[run_lib.Run]], column: str, axis: str = 'round'
) -> list[Curve]:
  """Returns the curves of groups of runs, in the order of the groups.

  Args:
    groups: Label -> runs that differ in their seed.
    column: A column of metrics.csv.
    axis: What they run along; a name in `runs.run.AXES`.

  Returns:
    A curve for each group whose runs have a round with a value in common.

  Raises:
    ValueError: If no run has values of the column, or one has none of the axis.
  """
  made = [_curve(label, members, column, axis) for label, members in groups.items()]
  found = [curve for curve in made if curve is not None]
  if not found:
    raise ValueError(f'no run has values of {column!r} in metrics.csv.')
  return found


def _curve(group: str, members: Sequence[run_lib.Run], column: str, axis: str) -> Curve | None:
  label, shown = scores.without_diverged(group, members, column)
  found = [run.curve(column) for run in shown]
  rounds = sorted(set.intersection(*map(set, found)))
  if not rounds:
    return None
  values = np.array([[curve[t] for t in rounds] for curve in found], np.float64)
  with np.errstate(all='ignore'):  # Of a run that diverged values may be NaN or infinite.
    std = values.std(axis=0, ddof=1) if len(shown) > 1 else np.zeros(len(rounds))
    mean = values.mean(axis=0)
  x = np.mean([[run.progress(axis)[t] for t in rounds] for run in shown], axis=0)
  ends = [max(curve) for curve in found]
  short = [run.folder for run, end in zip(shown, ends) if end < max(ends)]
  if short:
    label += f', to round {rounds[-1]}'
  diverged = scores.is_left_out(shown[0], column)
  improved = scores.sign(column) * (mean[-1] - mean[0]) > 0 or len(mean) == 1
  learned = not diverged and (improved or not scores.has_direction(column))
  return Curve(group, label, np.array(rounds), x, mean, std, diverged, learned, short)


def note(groups: Iterable[str], curves: Sequence[Curve], column: str) -> str:
  """Says which groups' curves end before some of their runs do, and where; '' if none does."""
  by_group = {curve.group: curve for curve in curves}
  found = []
  for group in groups:
    curve = by_group.get(group)
    if curve is None:
      found.append(f'{group} has no curve: its runs have no round with {column} in common.')
    elif curve.short:
      others = f' and {len(curve.short) - 1} more' if len(curve.short) > 1 else ''
      found.append(
        f'The curve of {group} ends at round {curve.rounds[-1]}, the last that all its runs have,'
        f' because of {curve.short[0]}{others}.'
      )
  return ' '.join(found)


def table(by_column: Mapping[str, Sequence[Curve]], axis: str = 'round') -> str:
  """Returns the numbers behind a figure of curves as CSV.

  Args:
    by_column: Column of metrics.csv -> its curves.
    axis: What they run along.

  Returns:
    A row for each group and each round at which all columns were measured in all its runs: the
    label, the round, the axis if it is another, and of each column the mean and the sample
    standard deviation over the runs that did not diverge; where all did, over all, and the label
    says so.
  """
  along = [] if axis == 'round' else [axis]
  names = [f'{column}_{kind}' for column in by_column for kind in ('mean', 'std')]
  rows: list[list[Any]] = [['label', 'round', *along, *names]]
  for group in dict.fromkeys(curve.group for curves in by_column.values() for curve in curves):
    found = [curve for curves in by_column.values() for curve in curves if curve.group == group]
    if len(found) < len(by_column):
      continue
    label = f'{group} (diverged)' if any(curve.diverged for curve in found) else group
    points = [dict(zip(c.rounds.tolist(), zip(c.x, c.mean, c.std))) for c in found]
    for t in sorted(set.intersection(*map(set, points))):
      place = [points[0][t][0]] if along else []
      rows.append([label, t, *place, *(v for point in points for v in point[t][1:])])
  return table_lib.csv_text(rows)
