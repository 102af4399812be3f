"""Figures of curves: one run, several runs side by side, and how clients differ."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import curves as curves_lib, scores, style
from tff_adaptive.runs import names

_EVALUATED = ('validation', 'inference')
_AXES = {
  'round': 'round',
  'megabytes': 'megabytes sent by and to clients',
  'seconds': 'seconds of training',
  'virtual_seconds': 'virtual seconds',
}
# The end is shown enlarged where it takes less than this part of the whole range.
_SMALL = 0.25


def draw_run(path: str, rows: Sequence[Mapping[str, float]]) -> None:
  """Draws the curves of one run: each metric by round, training and validation together.

  Args:
    path: The picture to write, atomically; its ending gives the format.
    rows: Column -> number for each round, empty cells absent.
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
  by_column: Mapping[str, Sequence[curves_lib.Curve]],
  *,
  axis: str = 'round',
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
) -> Any:
  """Draws curves side by side: their means, and bands of one standard deviation.

  A panel's limits are those of the runs that learned: one that diverged leaves it. Where the
  curves end close to each other, their second half is shown enlarged as well.

  Args:
    by_column: Column of metrics.csv -> its curves.
    axis: What they run along; a name in `runs.run.AXES`.
    title: Over the figure.
    levels: Name -> value of horizontal lines, such as published results.
    log_scale: Those of the columns whose axis is logarithmic.

  Returns:
    The `matplotlib.figure.Figure`.

  Raises:
    ValueError: If `log_scale` has another column.
  """
  for column in log_scale:
    if column not in by_column:
      raise ValueError(f'{column!r} is to be logarithmic but is not drawn.')
  ends = {c: _end(curves) for c, curves in by_column.items() if c not in log_scale}
  panels = [(column, False) for column in by_column]
  enlarged = [column for column, end in ends.items() if end is not None]
  if enlarged:  # A row for each column, the end next to the whole.
    figure, grid = style.figure(len(by_column), 2, title=title)
    panels = [(column, is_end) for column in by_column for is_end in (False, True)]
  else:
    figure, grid = style.figure(1, len(by_column), title=title)
  lines: dict[str, Any] = {}
  for axes, (column, is_end) in zip(grid.flat, panels):
    if is_end and column not in enlarged:
      axes.set_axis_off()
      continue
    if column in log_scale:
      axes.set_yscale('log')
    lines |= _draw(axes, by_column[column], levels or {})
    _frame(
      axes,
      column,
      by_column[column],
      list((levels or {}).values()),
      ends[column] if is_end else None,
    )
    axes.set_xlabel(_AXES[axis])
    if axis == 'round':
      axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel(names.metric(column) + (', the end' if is_end else ''))
  labels = _in_order(by_column, lines)
  style.legend(figure, [lines[label] for label in labels], labels)
  return figure


def draw_partition(path: str, sizes: Sequence[int], counts: Any, title: str = '') -> None:
  """Draws how clients differ: labels held by each of some clients, and the sizes of all.

  Args:
    path: The picture to write, atomically; its ending gives the format.
    sizes: Examples of each client.
    counts: int [clients shown, classes], examples by label; empty leaves that panel out.
    title: Over the figure.
  """
  has_labels = len(counts) > 0
  figure, (all_axes,) = style.figure(1, 1 + has_labels, title=title)
  if has_labels:
    import matplotlib

    counts = np.asarray(counts)
    axes, left = all_axes[0], np.zeros(len(counts))
    colors = matplotlib.colormaps['turbo'](np.linspace(0, 1, counts.shape[1]))
    for label, color in enumerate(colors):
      name = str(label) if counts.shape[1] <= 12 else None
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


def _draw(axes: Any, curves: Sequence[curves_lib.Curve], levels: Mapping[str, float]) -> dict:
  """Draws all curves; returns their lines by label."""
  lines = {}
  for number, curve in enumerate(curves):
    (lines[curve.label],) = axes.plot(curve.x, curve.mean, **style.line(number))
    if curve.std.any():
      low, high = curve.mean - curve.std, curve.mean + curve.std
      axes.fill_between(
        curve.x, low, high, color=style.line(number)['color'], alpha=0.15, linewidth=0
      )
  for name, level in levels.items():
    lines[f'{name} = {level:g}'] = axes.axhline(level, color='0.4', linestyle=':', linewidth=1)
  axes.grid(alpha=0.3)
  return lines


def _frame(
  axes: Any,
  column: str,
  curves: Sequence[curves_lib.Curve],
  levels: Sequence[float],
  end: tuple[float, float] | None,
) -> None:
  """Sets the limits of a panel: those of its end, or of all that learned."""
  is_log = axes.get_yscale() == 'log'
  # A logarithmic axis has room for what got worse, too.
  shown = [c for c in curves if (not c.diverged if is_log else c.learned)] or list(curves)
  last = max(float(c.x[-1]) for c in curves)
  if end is not None:
    axes.set_xlim(last / 2, last * 1.01)
    axes.set_ylim(*end)
    return
  whole = _whole(shown, column, is_log)
  inside = [v for v in levels if scores.has_direction(column)]
  limits = style.limits([*whole, *inside])
  if limits is not None and not is_log:
    axes.set_ylim(*limits)
  elif limits is not None and whole:
    axes.set_ylim(min(whole) / 1.2, max(whole) * 1.2)


def _whole(shown: Sequence[curves_lib.Curve], column: str, is_log: bool) -> list[float]:
  """The values that a panel shows: of losses none above where all began, but for a log scale."""
  if is_log:  # It shows spikes next to small values; mean - std may be 0 or below.
    values = np.concatenate([c.mean for c in shown])
    return list(values[np.isfinite(values) & (values > 0)])
  values = np.concatenate([part for c in shown for part in (c.mean - c.std, c.mean + c.std)])
  values = values[np.isfinite(values)]
  if scores.has_direction(column) and scores.sign(column) < 0:
    values = values[values <= max(float(c.mean[0] + c.std[0]) for c in shown)]
  return list(values)


def _end(curves: Sequence[curves_lib.Curve]) -> tuple[float, float] | None:
  """The limits of the curves' second half, if that is worth a panel of its own."""
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


def _in_order(
  by_column: Mapping[str, Sequence[curves_lib.Curve]], lines: Mapping[str, Any]
) -> list[str]:
  """The labels by what the first column ends with, the best first, where that is known."""
  column, curves = next(iter(by_column.items()))
  if not scores.has_direction(column):
    return list(lines)
  ends = {c.label: float(scores.sign(column) * c.mean[-1]) for c in curves}
  ends = {label: end if np.isfinite(end) else -np.inf for label, end in ends.items()}
  return sorted(lines, key=lambda label: -ends.get(label, -np.inf))
