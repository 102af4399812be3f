"""Draws curves over repetitions, the curves of one run, and how clients differ."""

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
# The end is shown enlarged where it takes less than this part of the whole range.
_SMALL = 0.25


@dataclasses.dataclass(frozen=True)
class Curve:
  """The mean curve of a group's runs that did not diverge, or of all runs if all diverged.

  Attributes:
    group: The group's label.
    label: The group's label, with the number of runs, and with the end of the curve if some runs
      are longer.
    rounds: int [R], the rounds that all runs have.
    x: float64 [R], the mean position of the runs on the axis after these rounds.
    mean: float64 [R].
    std: float64 [R], sample standard deviation over the runs; 0 for one.
    diverged: Whether all runs of the group diverged.
    learned: Whether the runs did not diverge, and the curve ends better than it began (if it is
      known which values are good).
  """

  group: str
  label: str
  rounds: np.ndarray
  x: np.ndarray
  mean: np.ndarray
  std: np.ndarray
  diverged: bool
  learned: bool


def mean_curves(
  groups: Mapping[str, Sequence[run_lib.Run]], column: str, axis: str = 'round'
) -> list[Curve]:
  """Returns the curves of groups of runs, in the order of the groups.

  Args:
    groups: Label -> runs that differ in their seed.
    column: A column of metrics.csv.
    axis: The horizontal axis, a name in `runs.run.AXES`.

  Raises:
    ValueError: If runs of a group have no round in common with a value, or no value of the axis.
  """
  return [_curve(label, members, column, axis) for label, members in groups.items()]


def _curve(group: str, members: Sequence[run_lib.Run], column: str, axis: str) -> Curve:
  label, shown = scores.without_diverged(group, members, column)
  found = [run.curve(column) for run in shown]
  rounds = sorted(set.intersection(*map(set, found)))
  if not rounds:
    raise ValueError(f'the runs of {group!r} have no round with a value of {column!r} in common.')
  values = np.array([[curve[t] for t in rounds] for curve in found], np.float64)
  with np.errstate(all='ignore'):  # Of a run that diverged values may be NaN or infinite.
    std = values.std(axis=0, ddof=1) if len(shown) > 1 else np.zeros(len(rounds))
    mean = values.mean(axis=0)
  x = np.mean([[run.progress(axis)[t] for t in rounds] for run in shown], axis=0)
  if rounds[-1] < max(t for curve in found for t in curve):
    label += f', to round {rounds[-1]}'
  diverged = scores.is_left_out(shown[0], column)
  improved = scores.sign(column) * (mean[-1] - mean[0]) > 0 or len(mean) == 1
  learned = not diverged and (improved or not scores.has_direction(column))
  return Curve(group, label, np.array(rounds), x, mean, std, diverged, learned)


def curves_table(by_column: Mapping[str, Sequence[Curve]], axis: str = 'round') -> str:
  """Returns the numbers behind a figure of curves as CSV.

  Args:
    by_column: Column of metrics.csv -> its curves.
    axis: The horizontal axis of the curves.

  Returns:
    A row for each group and each round at which all its runs have all columns. It has the label,
    the round, the value of the axis if that is not the round, and each column's mean and sample
    standard deviation over the runs that did not diverge. If all diverged, they are over all runs,
    and the label says so.
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
  return report.csv_text(rows)


def draw_run(path: str, rows: Sequence[Mapping[str, float]]) -> None:
  """Draws the curves of one run: each metric by round, training and validation together.

  Args:
    path: The picture to write atomically. Its extension gives the format.
    rows: Column -> number for each round, without empty cells.
  """
  panels: dict[str, list[str]] = {}
  for column in dict.fromkeys(name for row in rows for name in row):
    kind, _, metric = column.partition('_')
    if kind in ('train', *_EVALUATED):
      panels.setdefault(metric, []).append(column)
  # What is measured in training only has nothing to be compared with.
  panels = {m: c for m, c in panels.items() if any(k.startswith(_EVALUATED) for k in c)}
  figure, (all_axes,) = style.figure(1, max(1, len(panels)))
  kinds = ['train', *_EVALUATED]
  lines = {}
  for axes, (metric, columns) in zip(all_axes, panels.items()):
    for column in columns:
      kind = column.partition('_')[0]
      points = [(row['round'], row[column]) for row in rows if column in row]
      faint = {'alpha': 0.5, 'linewidth': 1} if kind == 'train' else {}
      look = {**style.line(kinds.index(kind)), **faint}
      (lines[kind],) = axes.plot(*zip(*points), label=kind, **look)
    axes.set(xlabel='round', ylabel=metric.replace('_', ' '))
    axes.grid(alpha=0.3)
  style.legend(figure, list(lines.values()), list(lines))
  style.write(figure, path)


def comparison(
  by_column: Mapping[str, Sequence[Curve]],
  *,
  axis: str = 'round',
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
) -> Any:
  """Draws curves side by side: their means, and bands of one standard deviation.

  A panel's limits come from the runs that learned, so the curve of a run that diverged may leave
  it. If curves end close to each other, their second half is also shown enlarged, with the
  deviations at the end side by side instead of bands.

  Args:
    by_column: Column of metrics.csv -> its curves.
    axis: The horizontal axis, a name in `runs.run.AXES`.
    title: The title of the figure.
    levels: Name -> value of a horizontal line, such as a published result.
    log_scale: The columns whose axis is logarithmic.

  Returns:
    The `matplotlib.figure.Figure`.

  Raises:
    ValueError: If `log_scale` has a column that is not drawn.
  """
  for column in log_scale:
    if column not in by_column:
      raise ValueError(f'{column!r} is to be logarithmic but is not drawn.')
  ends = {c: None if c in log_scale else _end(curves) for c, curves in by_column.items()}
  if any(ends.values()):  # A row for each column, the end next to the whole.
    figure, grid = style.figure(len(by_column), 2, title=title)
    panels = [(column, is_end) for column in by_column for is_end in (False, True)]
  else:
    figure, grid = style.figure(1, len(by_column), title=title)
    panels = [(column, False) for column in by_column]
  lines: dict[str, Any] = {}
  for axes, (column, is_end) in zip(grid.flat, panels):
    if is_end and ends[column] is None:
      axes.set_axis_off()
      continue
    curves = by_column[column]
    if column in log_scale:
      axes.set_yscale('log')
    lines |= _draw(axes, curves, levels or {}, bands=not is_end)
    if is_end:
      last = max(float(c.x[-1]) for c in curves)
      beside = [last * (1.02 + 0.01 * number) for number in range(len(curves))]
      for number, (x, curve) in enumerate(zip(beside, curves)):
        color = style.line(number)['color']
        axes.errorbar(x, curve.mean[-1], curve.std[-1], fmt='none', ecolor=color, elinewidth=1.4)
      axes.set(xlim=(last / 2, beside[-1] + 0.01 * last), ylim=ends[column])
    else:
      axes.set_ylim(_limits(column, curves, [*(levels or {}).values()], column in log_scale))
    axes.set_xlabel(_AXES[axis])
    if axis == 'round':
      axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(names.metric(column) + (', the end' if is_end else ''))
  labels = _in_order(by_column, lines)
  style.legend(figure, [lines[label] for label in labels], labels)
  return figure


def draw_partition(
  path: str, sizes: Sequence[int], counts: Any, title: str = '', names: Sequence[str] = ()
) -> None:
  """Draws how clients differ: the labels that some clients hold, and the sizes of all.

  Args:
    path: The picture to write atomically. Its extension gives the format.
    sizes: The number of examples of each client.
    counts: int [clients shown, classes], the number of examples by label. If it is empty, this
      panel is left out.
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


def _draw(axes: Any, curves: Sequence[Curve], levels: Mapping[str, float], bands: bool) -> dict:
  """Draws all curves; returns their lines by label."""
  lines = {}
  for number, curve in enumerate(curves):
    (lines[curve.label],) = axes.plot(curve.x, curve.mean, **style.line(number))
    if bands and curve.std.any():
      low, high = curve.mean - curve.std, curve.mean + curve.std
      axes.fill_between(
        curve.x, low, high, color=style.line(number)['color'], alpha=0.15, linewidth=0
      )
  for name, level in levels.items():
    lines[f'{name} = {level:g}'] = axes.axhline(level, color='0.4', linestyle=':', linewidth=1)
  axes.grid(alpha=0.3)
  return lines


def _limits(
  column: str, curves: Sequence[Curve], levels: Sequence[float], is_log: bool
) -> tuple[float, float] | None:
  """Returns a panel's limits from the curves that learned; a loss's are not above its start."""
  # A logarithmic axis has room for what got worse and for spikes; there mean - std may be below 0.
  shown = [c for c in curves if (not c.diverged if is_log else c.learned)] or list(curves)
  parts = (c.mean + k * c.std for c in shown for k in ((0,) if is_log else (-1, 1)))
  values = np.concatenate(list(parts))
  values = values[np.isfinite(values)]
  if is_log:
    values = values[values > 0]
    return (values.min() / 1.2, values.max() * 1.2) if len(values) else None
  if not scores.has_direction(column):
    return style.limits(values)
  if scores.sign(column) < 0:
    values = values[values <= max(float(c.mean[0] + c.std[0]) for c in shown)]
  return style.limits([*values, *levels])


def _end(curves: Sequence[Curve]) -> tuple[float, float] | None:
  """Returns the limits of the curves' second half if it deserves a panel of its own, else None."""
  shown = [c for c in curves if c.learned]
  if len(shown) < 2:
    return None
  last = max(float(c.x[-1]) for c in shown)
  late = [c.mean[c.x >= last / 2] for c in shown]
  whole = style.limits(np.concatenate([c.mean for c in shown]))
  end = style.limits(np.concatenate(late), margin=0.1)
  if end is None or whole is None or min(map(len, late)) < 2:
    return None
  return end if end[1] - end[0] < _SMALL * (whole[1] - whole[0]) else None


def _in_order(by_column: Mapping[str, Sequence[Curve]], lines: Mapping[str, Any]) -> list[str]:
  """Returns the labels, if possible sorted by the last value of the first column, best first."""
  column, curves = next(iter(by_column.items()))
  if not scores.has_direction(column):
    return list(lines)
  ends = {c.label: float(-scores.sign(column) * c.mean[-1]) for c in curves}
  return sorted(lines, key=lambda n: ends[n] if np.isfinite(ends.get(n, np.inf)) else np.inf)
