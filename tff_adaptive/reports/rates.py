"""Ease of tuning: how well an optimizer does by client and server rate.

The form of Figures 2 and 6 of "Adaptive Federated Optimization" (Reddi et al., 2021): a map for
each optimizer, of the mean over the last 100 rounds; next to it the best server rate by client
rate.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import number_texts, report, scores, style, table as table_lib
from tff_adaptive.runs import groups as groups_lib, run as run_lib

CLIENT, SERVER = 'client_learning_rate', 'server_learning_rate'
_DIGITS, _DATA_DIGITS = 3, 6  # Of a rate in tables and in the data; more where two would be alike.
_PANELS_IN_A_ROW = 3
_MOST_LEVEL = 8  # Client rates below a map whose labels do not run into each other.
# Colours span the better part of the cells: one that learned nothing would take them all.
_FIRST_QUANTILE = 0.25


@dataclasses.dataclass(frozen=True)
class Map:
  """One optimizer's scores by (client rate, server rate)."""

  label: str
  cells: Mapping[tuple[float, float], scores.Score]

  def best_by_client_rate(self, column: str) -> dict[float, tuple[float, scores.Score]]:
    """Client rate -> the server rate with the best score, and the score; if any is finite."""
    found: dict[float, tuple[float, scores.Score]] = {}
    sign = scores.sign(column)
    for (client, server), score in sorted(self.cells.items()):
      if score.is_finite and (
        client not in found or sign * score.mean > sign * found[client][1].mean
      ):
        found[client] = (server, score)
    return found


def build(
  runs: Sequence[run_lib.Run],
  column: str,
  *,
  label_by: Sequence[str] | None = None,
  title: str = '',
) -> report.Report:
  """Returns the maps of some runs.

  Args:
    runs: Runs with rates of their own; those that differ in their seed only are averaged.
    column: The column of metrics.csv.
    label_by: The settings that distinguish maps; by default all that differ but the rates.
    title: Over the figure.

  Raises:
    ValueError: If a run has no rates, or two of a cell have the same seed.
  """
  maps = [
    Map(label, _cells(label, members, column))
    for label, members in groups_lib.partition(runs, label_by, without=(CLIENT, SERVER)).items()
  ]
  what = scores.heading(column, runs)
  tables = [_table(m, column, what) for m in maps]
  tables.append(_best_table(maps, column, what, scores.note({}, runs)))
  clients, servers = (number_texts.distinct(rates, _DATA_DIGITS) for rates in _axes_of(maps))
  data = [
    [m.label, clients[client], servers[server], len(s.values), s.mean, s.std]
    for m in maps
    for (client, server), s in sorted(m.cells.items())
  ]
  text = table_lib.csv_text([['label', CLIENT, SERVER, 'runs', 'mean', 'std'], *data])
  return report.Report(tables, text, _draw(maps, column, what, title), title)


def _cells(
  label: str, members: Sequence[run_lib.Run], column: str
) -> dict[tuple[float, float], scores.Score]:
  cells: dict[tuple[float, float], list[run_lib.Run]] = {}
  for run in members:
    rates = run.settings.get(CLIENT), run.settings.get(SERVER)
    if None in rates:
      raise ValueError(f'{run.folder} has no {CLIENT} and {SERVER} among its settings.')
    cells.setdefault((float(str(rates[0])), float(str(rates[1]))), []).append(run)
  for (client, server), repeated in cells.items():
    seeds = [run.settings.get('seed') for run in repeated]
    if len(set(seeds)) < len(seeds):
      raise ValueError(
        f'two runs of {label!r} with rates {client:g} and {server:g} have the same seed: label the'
        ' maps by a setting that distinguishes them, or leave some runs out.'
      )
  return {rates: scores.score(repeated, column) for rates, repeated in cells.items()}


def _axes_of(maps: Sequence[Map]) -> tuple[list[float], list[float]]:
  """All client rates and all server rates, ascending."""
  keys = [key for m in maps for key in m.cells]
  return sorted({k[0] for k in keys}), sorted({k[1] for k in keys})


def _table(m: Map, column: str, what: str) -> table_lib.Table:
  """A map as a table: server rates down, the highest first, client rates across."""
  clients, servers = _axes_of([m])
  texts = number_texts.distinct(servers, _DIGITS)
  best = scores.is_best(m.cells, column)
  places = [[(client, server) for client in clients] for server in reversed(servers)]
  rows = [
    [f'server {texts[row[0][1]]}', *(scores.text(m.cells.get(at), column, 1) for at in row)]
    for row in places
  ]
  bold = {(i, j) for i, row in enumerate(places) for j, at in enumerate(row, 1) if at in best}
  return table_lib.Table(_heading(clients), rows, frozenset(bold), f'{m.label}: {what}')


def _heading(clients: Sequence[float]) -> list[str]:
  return ['', *(f'client {text}' for text in number_texts.distinct(clients, _DIGITS).values())]


def _best_table(maps: Sequence[Map], column: str, what: str, note: str) -> table_lib.Table:
  clients, servers = _axes_of(maps)
  texts = number_texts.distinct(servers, _DIGITS)
  rows = []
  for m in maps:
    cells = {
      client: f'{texts[server]} ({scores.text(score, column, 1)})'
      for client, (server, score) in m.best_by_client_rate(column).items()
    }
    rows.append([m.label, *(cells.get(client, '') for client in clients)])
  title = f'Best server rate by client rate ({what})'
  return table_lib.Table(_heading(clients), rows, title=title, note=note)


def _draw(maps: Sequence[Map], column: str, what: str, title: str) -> Any:
  clients, servers = _axes_of(maps)
  columns = min(_PANELS_IN_A_ROW, len(maps) + 1)
  rows = math.ceil((len(maps) + 1) / columns)
  width, height = max(3.2, 0.4 * len(clients) + 1.2), max(2.8, 0.32 * len(servers) + 1.2)
  figure, grid = style.figure(rows, columns, width, height, title=title)
  for axes in grid.flat[len(maps) + 1 :]:
    axes.set_axis_off()
  limits = _color_limits(maps, column)
  image = None
  for m, axes in zip(maps, grid.flat):
    image = _draw_map(axes, m, clients, servers, column, limits)
  if image is not None:
    worse = 'min' if scores.sign(column) > 0 else 'max'
    diverged = any(not s.is_finite for m in maps for s in m.cells.values())
    label = what.replace(', mean', ',\nmean') + ('; x: diverged' if diverged else '')
    figure.colorbar(image, ax=grid, extend=worse, label=label, shrink=0.8)
  _draw_best(grid.flat[len(maps)], maps, column)
  return figure


def _color_limits(maps: Sequence[Map], column: str) -> tuple[float, float]:
  """Of the colours: from the first quartile, counted from the worst, to the best."""
  factor, _ = scores.unit(column)
  values = [factor * s.mean for m in maps for s in m.cells.values() if s.is_finite] or [0.0]
  is_high = scores.sign(column) > 0
  worse = float(np.quantile(values, _FIRST_QUANTILE if is_high else 1 - _FIRST_QUANTILE))
  low, high = (worse, max(values)) if is_high else (min(values), worse)
  return (low, high) if low < high else (low - 0.5, high + 0.5)


def _draw_map(
  axes: Any,
  m: Map,
  clients: Sequence[float],
  servers: Sequence[float],
  column: str,
  limits: tuple[float, float],
) -> Any:
  factor, symbol = scores.unit(column)
  values = np.full((len(servers), len(clients)), np.nan)
  for (client, server), s in m.cells.items():
    if s.is_finite:
      values[servers.index(server), clients.index(client)] = factor * s.mean
  colors = 'viridis' if scores.sign(column) > 0 else 'viridis_r'
  low, high = limits
  image = axes.imshow(values, origin='lower', aspect='auto', cmap=colors, vmin=low, vmax=high)
  for (client, server), s in m.cells.items():
    x, y = clients.index(client), servers.index(server)
    if not s.is_finite:
      axes.text(x, y, 'x', ha='center', va='center', color='0.4')
      continue
    place = (factor * s.mean - low) / (high - low)
    is_dark = (place if scores.sign(column) > 0 else 1 - place) < 0.55
    text = f'{factor * s.mean:.1f}' if symbol else f'{s.mean:.3g}'
    axes.text(x, y, text, ha='center', va='center', fontsize=7, color='w' if is_dark else 'k')
  rotation = 90 if len(clients) > _MOST_LEVEL else 0
  axes.set_xticks(range(len(clients)), _logs(clients), rotation=rotation)
  axes.set_yticks(range(len(servers)), _logs(servers))
  axes.set(xlabel='client rate (log10)', ylabel='server rate (log10)', title=m.label)
  axes.title.set_parse_math(False)
  return image


def _draw_best(axes: Any, maps: Sequence[Map], column: str) -> None:
  """The best server rate by client rate, in both logarithms."""
  for number, m in enumerate(maps):
    best = {c: s for c, (s, _) in m.best_by_client_rate(column).items() if c > 0 and s > 0}
    shift = 0.03 * (number - (len(maps) - 1) / 2)  # So that no line hides another.
    if best:
      axes.plot(
        [math.log10(c) + shift for c in best],
        [math.log10(s) for s in best.values()],
        label=m.label,
        alpha=0.9,
        **style.marked(number),
      )
  axes.grid(alpha=0.3)
  axes.set(
    xlabel='client rate (log10)', ylabel='best server rate (log10)', title='best server rate'
  )
  if axes.get_legend_handles_labels()[0]:
    made = axes.legend(fontsize='x-small', frameon=False, loc='upper left', bbox_to_anchor=(1, 1))
    for text in made.get_texts():
      text.set_parse_math(False)


def _logs(rates: Sequence[float]) -> list[str]:
  """The logarithms of rates, as the papers' figures have them."""
  logs = [math.log10(rate) if rate > 0 else -math.inf for rate in rates]
  texts = number_texts.distinct(logs, _DIGITS)
  return [texts[log] for log in logs]
