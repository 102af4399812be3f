"""Shows how easily an optimizer is tuned: a metric by client and server learning rate."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import cross_tables, report, scores, style
from tff_adaptive.runs import groups as groups_lib, run as run_lib

CLIENT = 'client_learning_rate'
SERVER = 'server_learning_rate'
# Of rates in tables and in CSV; more if two look equal.
_DIGITS = 3
_DATA_DIGITS = 6
_PANELS_IN_A_ROW = 3
# Colours span the best 75 % of the cells, because one very bad cell would use up the scale.
_FIRST_QUANTILE = 0.25

Cells = Mapping[tuple[float, float], scores.Score]  # By client rate and server rate.
Maps = Mapping[str, Cells]  # By label.


def by_rates(
  runs: Sequence[run_lib.Run],
  column: str,
  *,
  label_by: Sequence[str] | None = None,
  title: str = '',
) -> report.Report:
  """Returns a report with heat maps by client and server learning rate.

  It has the form of Figures 2 and 6 of "Adaptive Federated Optimization" (Reddi et al., 2021): a
  map and a table for each label, such as an optimizer, with the column's mean over the last rounds
  (see `scores.window`). A last table has the best server rate for each client rate.

  Args:
    runs: Runs with different learning rates. Runs that differ only in their seed are averaged.
    column: A column of metrics.csv.
    label_by: The settings that distinguish maps. The default is all that differ, except the rates.
    title: The title of the figure.

  Raises:
    ValueError: If a run lacks a rate or the column, or two runs have equal label, rates and seed.
  """
  groups = groups_lib.partition(runs, label_by, without=(CLIENT, SERVER))
  maps = {label: _cells(members, column) for label, members in groups.items()}
  what = scores.heading(column, runs)
  tables = [_table(f'{label}: {what}', cells, column) for label, cells in maps.items()]
  tables.append(_best_table(maps, column, what, scores.note({}, runs)))
  clients, servers = (report.distinct(rates, _DATA_DIGITS) for rates in _axes_of(maps))
  data: list[list[Any]] = [['label', CLIENT, SERVER, 'runs', 'mean', 'std']]
  for label, cells in maps.items():
    for (client, server), score in sorted(cells.items()):
      rates = [clients[client], servers[server]]
      data.append([label, *rates, len(score.values), score.mean, score.std])
  text = report.csv_text(data)
  return report.Report(tables, text, _draw_maps(maps, column, what, title), title)


def _cells(members: Sequence[run_lib.Run], column: str) -> Cells:
  def rates(run: run_lib.Run) -> tuple[float, float]:
    if run.settings.get(CLIENT) is None or run.settings.get(SERVER) is None:
      raise ValueError(f'{run.folder} has no {CLIENT} and {SERVER} among its settings.')
    return float(run.settings[CLIENT]), float(run.settings[SERVER])

  cells = cross_tables.split(members, rates)
  for repeated in cells.values():
    groups_lib.group(repeated, [CLIENT, SERVER])  # Refuses two runs with one seed.
  return {at: scores.score(repeated, column) for at, repeated in cells.items()}


def _axes_of(maps: Maps) -> tuple[list[float], list[float]]:
  """Returns all client rates and all server rates, ascending."""
  clients: set[float] = set()
  servers: set[float] = set()
  for cells in maps.values():
    for client, server in cells:
      clients.add(client)
      servers.add(server)
  return sorted(clients), sorted(servers)


def _best_servers(cells: Cells, column: str) -> dict[float, float]:
  """Returns the best server rate by client rate. If scores are equal, the lowest rate is best."""
  finite = [at for at, score in cells.items() if score.is_finite]
  # A dict keeps the last value of a key, which is the best one's here.
  worst_first = sorted(finite, key=lambda at: (scores.sign(column) * cells[at].mean, -at[1]))
  return dict(sorted(dict(worst_first).items()))


def _table(title: str, cells: Cells, column: str) -> report.Table:
  """Formats a map as a table, with falling server rates as rows and client rates as columns."""
  clients, servers = _axes_of({title: cells})
  texts = report.distinct(servers, _DIGITS)
  best = scores.is_best(cells, column)
  rows = []
  bold = set()
  # Falling, so that the table looks like the map.
  for i, server in enumerate(reversed(servers)):
    row = [f'server {texts[server]}']
    for j, client in enumerate(clients, 1):
      row.append(scores.text(cells.get((client, server)), column, 1))
      if (client, server) in best:
        bold.add((i, j))
    rows.append(row)
  return report.Table(_heading(clients), rows, frozenset(bold), title)


def _heading(clients: Sequence[float]) -> list[str]:
  return ['', *(f'client {text}' for text in report.distinct(clients, _DIGITS).values())]


def _best_table(maps: Maps, column: str, what: str, note: str) -> report.Table:
  clients, servers = _axes_of(maps)
  texts = report.distinct(servers, _DIGITS)
  rows = []
  for label, cells in maps.items():
    best = {}
    for client, server in _best_servers(cells, column).items():
      best[client] = f'{texts[server]} ({scores.text(cells[client, server], column, 1)})'
    rows.append([label, *(best.get(client, '') for client in clients)])
  title = f'Best server rate by client rate ({what})'
  return report.Table(_heading(clients), rows, title=title, note=note)


def _draw_maps(maps: Maps, column: str, what: str, title: str) -> Any:
  clients, servers = _axes_of(maps)
  columns = min(_PANELS_IN_A_ROW, len(maps))
  rows = math.ceil(len(maps) / columns)
  width = max(3.2, 0.4 * len(clients) + 1.2)
  height = max(2.8, 0.32 * len(servers) + 1.2)
  figure, grid = style.figure(rows, columns, width, height, title=title)
  for axes in grid.flat[len(maps) :]:
    axes.set_axis_off()
  is_high = scores.sign(column) > 0
  limits = _color_limits(maps, column)
  x = list(report.distinct(clients, _DIGITS).values())
  y = list(report.distinct(servers, _DIGITS).values())
  for (label, cells), axes in zip(maps.items(), grid.flat):
    pixels = []
    for server in servers:
      pixels.append([_drawn(cells.get((client, server)), column) for client in clients])
    image = axes.imshow(
      pixels,
      origin='lower',
      aspect='auto',
      cmap='viridis' if is_high else 'viridis_r',
      clim=limits,
    )
    for (client, server), score in cells.items():
      _write_cell(image, clients.index(client), servers.index(server), score, column)
    axes.set_xticks(range(len(clients)), x, rotation=90)
    axes.set_yticks(range(len(servers)), y)
    axes.set(xlabel='client rate', ylabel='server rate', title=label)
  about = what.replace(', mean', ',\nmean')
  if not all(score.is_finite for score in _scores(maps)):
    about += '; x: diverged'
  extend = 'min' if is_high else 'max'
  figure.colorbar(image, ax=grid, extend=extend, label=about, shrink=0.8)
  return figure


def _color_limits(maps: Maps, column: str) -> tuple[float, float]:
  """Returns the limits of the colour scale, which spans the best three quarters of the cells."""
  values = [_drawn(score, column) for score in _scores(maps) if score.is_finite]
  quantiles = (0.0, 1 - _FIRST_QUANTILE)
  if scores.sign(column) > 0:
    quantiles = (_FIRST_QUANTILE, 1.0)
  low, high = np.quantile(values or [0.0], quantiles).tolist()
  if low == high:  # A scale without extent has no colours.
    return low - 0.5, high + 0.5
  return low, high


def _scores(maps: Maps) -> list[scores.Score]:
  """Returns the scores of all cells."""
  of_all: list[scores.Score] = []
  for cells in maps.values():
    of_all += cells.values()
  return of_all


def _drawn(score: scores.Score | None, column: str) -> float:
  """Returns a score's mean in the column's unit; NaN if it diverged or does not exist."""
  if score is None or not score.is_finite:
    return math.nan
  return scores.unit(column)[0] * score.mean


def _write_cell(image: Any, x: int, y: int, score: scores.Score, column: str) -> None:
  if not score.is_finite:
    image.axes.text(x, y, 'x', ha='center', va='center', color='0.4')
    return
  value = _drawn(score, column)
  lightness = image.norm(value)
  if scores.sign(column) < 0:  # The colours are reversed.
    lightness = 1 - lightness
  # White on dark colours, black on light ones.
  color = 'w' if lightness < 0.55 else 'k'
  has_unit = scores.unit(column)[1] != ''
  text = f'{value:.3g}'
  if has_unit:
    text = f'{value:.1f}'
  image.axes.text(x, y, text, ha='center', va='center', fontsize=7, color=color)
