"""Figures: the curves of one run, and several runs side by side."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import runs as runs_lib

_EVALUATED = ('validation', 'inference')


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
  figure, all_axes = _figure(max(1, len(panels)))
  for axes, (metric, columns) in zip(all_axes, panels.items()):
    for column in columns:
      points = [(row['round'], row[column]) for row in rows if column in row]
      label = column.partition('_')[0]
      faint = {'alpha': 0.5, 'linewidth': 1} if label == 'train' else {}
      axes.plot(*zip(*points), label=label, **faint)
    axes.set_ylabel(metric)
    axes.legend()
  _write(figure, path)


def draw_comparison(
  path: str,
  groups: Mapping[str, Sequence[runs_lib.Run]],
  columns: Sequence[str],
  *,
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
) -> None:
  """Draws groups of runs: the mean over a group's seeds, and a band of one standard deviation.

  Args:
    path: The picture to write, atomically; its ending gives the format.
    groups: Label -> runs that differ in their seed.
    columns: Columns of metrics.csv, a panel each.
    title: Over the figure.
    levels: Name -> value of horizontal lines, such as published results.
    log_scale: Those of the columns whose axis is logarithmic.

  Raises:
    ValueError: If no run has a column, or `log_scale` has another.
  """
  for column in log_scale:
    if column not in columns:
      raise ValueError(f'{column!r} is to be logarithmic but is not drawn.')
  figure, all_axes = _figure(len(columns))
  for axes, column in zip(all_axes, columns):
    drawn = False
    if column in log_scale:
      axes.set_yscale('log')
    for label, members in groups.items():
      rounds, mean, std = mean_curve(members, column)
      if not len(rounds):
        continue
      drawn = True
      text = label if len(members) == 1 else f'{label} (n = {len(members)})'
      (line,) = axes.plot(rounds, mean, label=text)
      if len(members) > 1:
        axes.fill_between(
          rounds, mean - std, mean + std, color=line.get_color(), alpha=0.2, linewidth=0
        )
    if not drawn:
      raise ValueError(f'no run has values of {column!r} in metrics.csv.')
    for name, level in (levels or {}).items():
      axes.axhline(level, color='black', linestyle=':', linewidth=1)
      axes.annotate(name, (1, level), xycoords=('axes fraction', 'data'), ha='right', va='bottom')
    axes.set_ylabel(column.replace('_', ' '))
  all_axes[0].legend(fontsize='small')
  figure.suptitle(title)
  _write(figure, path)


def draw_partition(path: str, sizes: Sequence[int], counts: Any, title: str = '') -> None:
  """Draws how clients differ: labels held by each of some clients, and the sizes of all.

  Args:
    path: The picture to write, atomically; its ending gives the format.
    sizes: Examples of each client.
    counts: int [clients shown, classes], examples by label; empty leaves that panel out.
    title: Over the figure.
  """
  has_labels = len(counts) > 0
  figure, all_axes = _figure(1 + has_labels)
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
      axes.legend(fontsize='x-small', ncols=2)
  axes = all_axes[-1]
  axes.hist(sizes, bins=min(40, max(1, len(set(sizes)))))
  axes.set_xlabel('examples of a client')
  axes.set_ylabel('clients')
  figure.suptitle(title)
  _write(figure, path)


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


def curves_table(groups: Mapping[str, Sequence[runs_lib.Run]], columns: Sequence[str]) -> str:
  """Returns the numbers behind `draw_comparison` as CSV.

  Args:
    groups: Label -> runs that differ in their seed.
    columns: Columns of metrics.csv.

  Returns:
    A row for each group and each round at which all columns were measured in all its runs: the
    label, the round, and of each column the mean and the sample standard deviation.
  """
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(['label', 'round', *(f'{c}_{kind}' for c in columns for kind in ('mean', 'std'))])
  for label, members in groups.items():
    curves = []
    for column in columns:
      rounds, mean, std = mean_curve(members, column)
      curves.append({t: (m, s) for t, m, s in zip(rounds.tolist(), mean, std)})
    for t in sorted(set.intersection(*map(set, curves))):
      writer.writerow([label, t, *(f'{v:.6g}' for curve in curves for v in curve[t])])
  return text.getvalue()


def _figure(num_panels: int) -> tuple[Any, Any]:
  from matplotlib import figure as figure_lib  # Slow to import and needed here only.

  figure = figure_lib.Figure(figsize=(5.4 * num_panels, 3.8), layout='constrained')
  all_axes = figure.subplots(1, num_panels, squeeze=False)[0]
  for axes in all_axes:
    axes.set_xlabel('round')
    axes.grid(alpha=0.3)
  return figure, all_axes


def _write(figure: Any, path: str) -> None:
  with atomic_files.atomic_path(path) as temporary:
    figure.savefig(temporary, dpi=120)
