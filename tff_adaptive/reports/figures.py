"""Draws mean curves of groups of runs, the curves of one run, and the data of clients."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import report, scores, style
from tff_adaptive.runs import names, run as run_lib

_EVALUATED = ('validation', 'inference')
_AXES = {
  'round': 'round',
  'megabytes': 'megabytes sent by and to clients',
  'megabytes_up': 'megabytes sent by clients',
  'megabytes_down': 'megabytes sent to clients',
  'seconds': 'seconds of training',
  'virtual_seconds': 'virtual seconds',
}
_FEW = 20  # Lines with fewer points have markers.
_MOST_CLASSES = 12  # A legend names at most this many.
_MOST_NAMES = 40  # So many clients' names fit beside a panel.


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
    axis: The horizontal axis, a name in `run.AXES`, such as 'round' or 'megabytes'.

  Raises:
    ValueError: If the runs of a group have no common round with a value, or no values of the axis.
  """
  return [_curve(label, members, column, axis) for label, members in groups.items()]


def _curve(group: str, members: Sequence[run_lib.Run], column: str, axis: str) -> Curve:
  label, drawn = scores.without_diverged(group, members, column)
  curves = [run.curve(column) for run in drawn]
  # Rounds that all runs have, because a mean of fewer runs would jump where one ends.
  rounds = sorted(set.intersection(*map(set, curves)))
  if not rounds:
    raise ValueError(f'the runs of {group!r} have no round with a value of {column!r} in common.')
  values = np.array([_at(curve, rounds) for curve in curves], np.float64)
  std = np.zeros(len(rounds))
  with np.errstate(all='ignore'):  # Values of a diverged run may be NaN or infinite.
    mean = values.mean(axis=0)
    if len(drawn) > 1:
      std = values.std(axis=0, ddof=1)
  positions = [_at(run.progress(axis), rounds) for run in drawn]
  longest = max(max(curve) for curve in curves)
  if rounds[-1] < longest:
    label += f', to round {rounds[-1]}'
  return Curve(
    group,
    label,
    np.array(rounds),
    np.mean(positions, axis=0),
    mean,
    std,
    scores.has_diverged(drawn[0], column),
  )


def _at(by_round: Mapping[int, float], rounds: Sequence[int]) -> list[float]:
  return [by_round[t] for t in rounds]


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
  has_axis = axis != 'round'
  heading = ['label', 'round']
  if has_axis:
    heading.append(axis)
  by_group: dict[str, list[Curve]] = {}
  for column, curves in by_column.items():
    heading += [f'{column}_mean', f'{column}_std']
    for curve in curves:
      by_group.setdefault(curve.group, []).append(curve)
  rows: list[list[Any]] = [heading]
  for group, curves in by_group.items():
    label = group
    if any(curve.diverged for curve in curves):
      label = f'{group} (diverged)'
    points = [_points(curve) for curve in curves]
    # Columns may be evaluated at different rounds; a row has all of them.
    for t in sorted(set.intersection(*map(set, points))):
      row: list[Any] = [label, t]
      if has_axis:
        row.append(points[0][t][0])
      for of_column in points:
        row += of_column[t][1:]
      rows.append(row)
  return report.csv_text(rows)


def _points(curve: Curve) -> dict[int, tuple[float, float, float]]:
  """Returns x, mean and deviation by round."""
  return dict(zip(curve.rounds.tolist(), zip(curve.x, curve.mean, curve.std)))


def run_title(folder: str, config: Mapping[str, Any]) -> str:
  """Returns the title of a run's own figure: its folder's name, its algorithm and its data.

  Args:
    folder: The run's folder.
    config: The contents of its config.json.
  """
  settings = names.shown(config)
  parts = []
  if 'algorithm' in settings:
    parts.append(names.composition(settings))
  data = scores.data_of([settings])
  if data:
    parts.append(f'on {data}')
  name = os.path.basename(os.path.abspath(folder))
  return ': '.join(filter(None, (name, ' '.join(parts))))


def draw_run(path: str, rows: Sequence[Mapping[str, float]], title: str = '') -> None:
  """Draws the curves of one run: a panel for each metric, with training and validation by round.

  Args:
    path: The picture to write atomically. Its extension gives the format.
    rows: For each round a mapping from column to number, without empty cells.
    title: The title of the figure, such as `run_title`.
  """
  columns: dict[str, None] = {}  # A set that keeps the order.
  for row in rows:
    columns.update(dict.fromkeys(row))
  panels: dict[str, list[Curve]] = {}
  for column in columns:
    kind, _, metric = column.partition('_')
    if kind in ('train', *_EVALUATED):
      points = [(row['round'], row[column]) for row in rows if column in row]
      x, values = np.transpose(points)
      curve = Curve(kind, kind, x, x, values, np.zeros_like(values))
      panels.setdefault(metric, []).append(curve)
  # A metric that only training has is left out: there is nothing to compare it with.
  panels = {metric: curves for metric, curves in panels.items() if _is_evaluated(curves)}
  style.write(comparison(panels, title=title), path)


def _is_evaluated(curves: Sequence[Curve]) -> bool:
  return any(curve.group in _EVALUATED for curve in curves)


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
  ranks = dict.fromkeys(lines, np.inf)  # Levels, and what diverged, come last.
  for column, curves in reversed([*by_column.items()]):
    for curve in curves:
      end = float(-scores.sign(column) * curve.mean[-1])
      ranks[curve.label] = np.inf
      if np.isfinite(end):
        ranks[curve.label] = end
  labels = sorted(lines, key=ranks.__getitem__)
  style.legend(figure, [lines[label] for label in labels], labels)
  return figure


def draw_partition(
  path: str,
  sizes: Sequence[int],
  counts: Any,
  title: str = '',
  names: Sequence[str] = (),
  clients: Sequence[str] = (),
) -> None:
  """Draws the examples of some clients by label, and a histogram of the sizes of all clients.

  Args:
    path: The picture to write atomically. Its extension gives the format.
    sizes: The number of examples of each client.
    counts: int [clients shown, classes], the examples by label. If empty, their panel is left out.
    title: The title of the figure.
    names: The names of the classes; by default their numbers.
    clients: The names of the clients whose examples are shown; by default their numbers.
  """
  has_labels = len(counts) > 0
  panels = 2 if has_labels else 1
  figure, (all_axes,) = style.figure(1, panels, title=title)
  if has_labels:
    _draw_labels(figure, all_axes[0], np.asarray(counts), names, clients)
  axes = all_axes[-1]
  axes.hist(sizes, bins=min(40, max(1, len(set(sizes)))))
  axes.set_xlabel('examples of a client')
  axes.set_ylabel('clients')
  for axis in (axes.xaxis, axes.yaxis):
    axis.get_major_locator().set_params(integer=True)
  style.write(figure, path)


def _draw_labels(
  figure: Any, axes: Any, counts: np.ndarray, names: Sequence[str], clients: Sequence[str]
) -> None:
  """Draws a bar for each client, in which each class has a part."""
  num_clients, num_classes = counts.shape
  has_legend = num_classes <= _MOST_CLASSES
  places = np.arange(num_clients)
  left = np.zeros(num_clients)
  for number, look in enumerate(style.fills(num_classes)):
    label = None
    if has_legend:
      label = str(number)
      if len(names) > 0:
        label = names[number]
    axes.barh(places, counts[:, number], left=left, label=label, **look)
    left += counts[:, number]
  axes.set_xlabel('examples, a colour a label')
  axes.set_ylabel('client')
  axes.xaxis.get_major_locator().set_params(integer=True)
  if len(clients) > 0:
    step = -(-num_clients // _MOST_NAMES)
    labels = [style.short(client) for client in clients[:num_clients:step]]
    axes.set_yticks(places[::step], labels, fontsize='small', parse_math=False)
  else:
    axes.yaxis.get_major_locator().set_params(integer=True)
  axes.invert_yaxis()  # The first client is at the top, as in a table.
  if has_legend:
    style.legend(figure, *axes.get_legend_handles_labels())


def _draw(axes: Any, curves: Sequence[Curve], levels: Mapping[str, float]) -> dict[str, Any]:
  """Draws curves and horizontal levels, and returns the drawn lines by label."""
  lines = {
    f'{name} = {level:g}': axes.axhline(level, color='0.4', linestyle=':', linewidth=1)
    for name, level in levels.items()
  }
  all_diverged = all(curve.diverged for curve in curves)
  drawn: list[Curve] = []
  # Those that diverged come last, when the limits of the panel are known.
  for number, curve in sorted(enumerate(curves), key=lambda numbered: numbered[1].diverged):
    if curve.diverged and not all_diverged:
      axes.set_ylim(axes.get_ylim())  # The curve may leave the panel, not stretch it.
    look = style.line(number)
    if len(curve.x) < _FEW:
      look = style.marked(number)
    if any(_coincide(curve, below) for below in drawn):
      look['linestyle'] = style.OVER
    (lines[curve.label],) = axes.plot(curve.x, curve.mean, **look)
    drawn.append(curve)
    if curve.std.any():
      low = curve.mean - curve.std
      high = curve.mean + curve.std
      axes.fill_between(curve.x, low, high, color=look['color'], alpha=0.15, linewidth=0)
  axes.grid(alpha=0.3)
  return lines


def _coincide(curve: Curve, below: Curve) -> bool:
  """Returns whether a curve would hide most of another one that has been drawn.

  It hides the points that are less than a hundredth of the other's range away.
  """
  is_shared = np.isin(below.x, curve.x)
  if not is_shared.any():
    return False
  others = below.mean[is_shared]
  values = curve.mean[np.isin(curve.x, below.x)]
  if len(values) != len(others):  # Positions that are not rounds may occur twice.
    return False
  with np.errstate(all='ignore'):  # Values may be infinite.
    spread = np.ptp(below.mean)
    is_near = np.abs(values - others) <= 0.01 * spread
  return bool(np.mean(is_near) > 0.5)
