"""Draws mean curves of groups of runs, the curves of one run, and the data of clients."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import report, scores, style
from tff_adaptive.runs import names, run as run_lib

_EVALUATED = ('validation', 'inference')
_AXES = {
  'round': 'round',
  'megabytes': 'megabytes sent by and to clients',
  'seconds': 'seconds of training',
  'virtual_seconds': 'virtual seconds',
}
_FEW = 20  # Lines with fewer points have markers.


@dataclasses.dataclass(frozen=True)
class Curve:
  """A line of a figure: the mean of a group's runs that did not diverge, or of all if all diverged.

  Attributes:
    group: The group's label.
    label: The legend's text: `group`, the number of runs, and the last round if a run is longer.
    rounds: int [R], the R rounds in which all runs have a value.
    x: float64 [R], the mean position of the runs on the horizontal axis after these rounds.
    mean: float64 [R], the mean of the values over the runs.
    std: float64 [R], the sample standard deviation of these values; 0 for one run.
    diverged: Whether all runs of the group diverged.
  """

  group: str
  label: str
  rounds: np.ndarray
  x: np.ndarray
  mean: np.ndarray
  std: np.ndarray
  diverged: bool = False


def mean_curves(
  groups: Mapping[str, Sequence[run_lib.Run]], column: str, axis: str = 'round'
) -> list[Curve]:
  """Returns the curves of groups of runs, in the order of the groups.

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    column: A column of metrics.csv.
    axis: The horizontal axis: 'round', 'megabytes', 'seconds' or 'virtual_seconds'.

  Raises:
    ValueError: If the runs of a group have no common round with a value, or no values of the axis.
  """
  return [_curve(label, members, column, axis) for label, members in groups.items()]


def _curve(group: str, members: Sequence[run_lib.Run], column: str, axis: str) -> Curve:
  label, shown = scores.without_diverged(group, members, column)
  found = [run.curve(column) for run in shown]
  rounds = sorted(set.intersection(*map(set, found)))
  if not rounds:
    raise ValueError(f'the runs of {group!r} have no round with a value of {column!r} in common.')
  values = np.array([[curve[t] for t in rounds] for curve in found], np.float64)
  with np.errstate(all='ignore'):  # Values of a diverged run may be NaN or infinite.
    std = values.std(axis=0, ddof=1) if len(shown) > 1 else np.zeros(len(rounds))
    mean = values.mean(axis=0)
  positions = [run.progress(axis) for run in shown]
  x = np.mean([[position[t] for t in rounds] for position in positions], axis=0)
  if rounds[-1] < max(t for curve in found for t in curve):
    label += f', to round {rounds[-1]}'
  diverged = scores.has_diverged(shown[0], column)
  return Curve(group, label, np.array(rounds), x, mean, std, diverged)


def curves_table(by_column: Mapping[str, Sequence[Curve]], axis: str = 'round') -> str:
  """Returns the numbers behind a figure of curves, as the text of a CSV file.

  Args:
    by_column: The curves by column of metrics.csv.
    axis: The horizontal axis of the curves, as in `mean_curves`.

  Returns:
    A row for each group and each round in which all its runs have all columns. A row has the label,
    the round, the value of the axis if that is not the round, and each column's mean and sample
    standard deviation over the runs that did not diverge. If all runs diverged, both numbers are
    over all runs, and the label says so.
  """
  along = [] if axis == 'round' else [axis]
  names = [f'{column}_{kind}' for column in by_column for kind in ('mean', 'std')]
  rows: list[list[Any]] = [['label', 'round', *along, *names]]
  for group in dict.fromkeys(curve.group for curves in by_column.values() for curve in curves):
    found = [curve for curves in by_column.values() for curve in curves if curve.group == group]
    label = f'{group} (diverged)' if any(curve.diverged for curve in found) else group
    points = [dict(zip(c.rounds.tolist(), zip(c.x, c.mean, c.std))) for c in found]
    for t in sorted(set.intersection(*map(set, points))):
      place = [points[0][t][0]] if along else []
      rows.append([label, t, *place, *(v for point in points for v in point[t][1:])])
  return report.csv_text(rows)


def draw_run(path: str, rows: Sequence[Mapping[str, float]]) -> None:
  """Draws the curves of one run: a panel for each metric, with training and validation by round.

  Args:
    path: The picture to write atomically. Its extension gives the format.
    rows: For each round a mapping from column to number, without empty cells.
  """
  panels: dict[str, list[Curve]] = {}
  for column in dict.fromkeys(name for row in rows for name in row):
    kind, _, metric = column.partition('_')
    if kind in ('train', *_EVALUATED):
      points = [(row['round'], row[column]) for row in rows if column in row]
      x, values = np.transpose(points)
      curve = Curve(kind, kind, x, x, values, np.zeros_like(values))
      panels.setdefault(metric, []).append(curve)
  # A metric that only training has is left out: there is nothing to compare it with.
  panels = {m: c for m, c in panels.items() if any(curve.group in _EVALUATED for curve in c)}
  style.write(comparison(panels), path)


def comparison(
  by_column: Mapping[str, Sequence[Curve]],
  *,
  axis: str = 'round',
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
) -> Any:
  """Returns a figure with a panel for each column: mean curves and bands of one standard deviation.

  The limits of a panel come from the runs that did not diverge, so the curve of a run that diverged
  may leave the panel. The points of a curve are marked if there are fewer than 20.

  Args:
    by_column: The curves by column of metrics.csv. Each column has a panel.
    axis: The horizontal axis, as in `mean_curves`, or the text of its label.
    title: The title of the figure.
    levels: Values of horizontal lines by name, such as published results.
    log_scale: The columns with a logarithmic vertical axis.

  Raises:
    ValueError: If `log_scale` has a column that is not drawn.
  """
  for column in log_scale:
    if column not in by_column:
      raise ValueError(f'{column!r} is to be logarithmic but is not drawn.')
  figure, (grid,) = style.figure(1, max(1, len(by_column)), title=title)
  lines: dict[str, Any] = {}
  for axes, (column, curves) in zip(grid, by_column.items()):
    if column in log_scale:
      axes.set_yscale('log')
    lines |= _draw(axes, curves, levels or {})
    axes.set_xlabel(_AXES.get(axis, axis))
    if axis == 'round':
      axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(names.metric(column))
  # The legend has the best curve first, as judged by the first column that has the curve.
  ends = {
    c.label: float(-scores.sign(column) * c.mean[-1])
    for column, curves in reversed([*by_column.items()])
    for c in curves
  }
  labels = sorted(lines, key=lambda n: ends[n] if np.isfinite(ends.get(n, np.inf)) else np.inf)
  style.legend(figure, [lines[label] for label in labels], labels)
  return figure


def draw_partition(
  path: str, sizes: Sequence[int], counts: Any, title: str = '', names: Sequence[str] = ()
) -> None:
  """Draws the examples of some clients by label, and a histogram of the sizes of all clients.

  Args:
    path: The picture to write atomically. Its extension gives the format.
    sizes: The number of examples of each client.
    counts: int [clients shown, classes], the examples by label. If empty, their panel is left out.
    title: The title of the figure.
    names: The names of the classes; by default their numbers.
  """
  has_labels = len(counts) > 0
  figure, (all_axes,) = style.figure(1, 1 + has_labels, title=title)
  if has_labels:
    import matplotlib

    counts = np.asarray(counts)
    axes, left = all_axes[0], np.zeros(len(counts))
    colors = matplotlib.colormaps['turbo'](np.linspace(0, 1, counts.shape[1]))
    for label, color in enumerate(colors):
      name = (names or range(counts.shape[1]))[label] if counts.shape[1] <= 12 else None
      axes.barh(np.arange(len(counts)), counts[:, label], left=left, color=color, label=name)
      left += counts[:, label]
    axes.set_xlabel('examples, a colour a label')
    axes.set_ylabel('client')
    if counts.shape[1] <= 12:
      style.legend(figure, *axes.get_legend_handles_labels())
  axes = all_axes[-1]
  axes.hist(sizes, bins=min(40, max(1, len(set(sizes)))))
  axes.set_xlabel('examples of a client')
  axes.set_ylabel('clients')
  style.write(figure, path)


def _draw(axes: Any, curves: Sequence[Curve], levels: Mapping[str, float]) -> dict[str, Any]:
  """Draws curves and horizontal levels, and returns the drawn lines by label."""
  lines = {
    f'{name} = {level:g}': axes.axhline(level, color='0.4', linestyle=':', linewidth=1)
    for name, level in levels.items()
  }
  all_diverged = all(curve.diverged for curve in curves)
  for number, curve in sorted(enumerate(curves), key=lambda found: found[1].diverged):
    if curve.diverged and not all_diverged:
      axes.set_ylim(axes.get_ylim())  # The curve may leave the panel, not stretch it.
    look = (style.marked if len(curve.x) < _FEW else style.line)(number)
    (lines[curve.label],) = axes.plot(curve.x, curve.mean, **look)
    if curve.std.any():
      low, high = curve.mean - curve.std, curve.mean + curve.std
      axes.fill_between(curve.x, low, high, color=look['color'], alpha=0.15, linewidth=0)
  axes.grid(alpha=0.3)
  return lines
