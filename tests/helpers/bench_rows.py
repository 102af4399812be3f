"""Rows of the bench without training: each value is a known function of the run."""

import math

from scripts.comparison import methods, problems, rows

# By method: the value of a trial by its client rate, and what is added for each seed that counts.
OFFSETS = {1: 0.0, 2: 0.02, 3: -0.02}


def value_of(key, point, height):
  """A parabola in the logarithm of the client rate, with its top at 0.1."""
  if key.stage == rows.FINAL:
    return height + OFFSETS.get(key.number, 0.0)
  return height - 0.1 * math.log10(point['client_learning_rate'] / 0.1) ** 2


def row_of(key, point, height, **more):
  """A row that a run could have: the curve rises to the value."""
  value = value_of(key, point, height)
  values = {
    'status': rows.DONE,
    'value': value,
    'area': value / 2,
    'curve': f'0.1 {value:.6g} {value:.6g}',
    'megabytes': 2.0,
    'gradients': 100.0,
    'seconds': 0.5,
    'day': '2026-11-29',
  }
  return rows.Row(*key, point=rows.in_words(point), **{**values, **more})


def cell(problem, method, height, budget='small', seeds=None, **more):
  """The rows of a whole cell."""
  from scripts.comparison import cells

  of_cell = cells.Cell(problem, method, budget)
  trials = [
    row_of(key, point, height, **more)
    for key, point in zip(of_cell.search_keys(), of_cell.points())
  ]
  best = max(trials, key=lambda row: problems.PROBLEMS[problem].worth(row.value))
  finals = []
  for key in of_cell.final_keys():
    if seeds is None or key.number in seeds:
      finals.append(row_of(key, best.settings, height, **more))
  return {row.key: row for row in (*trials, *finals)}


def fed_avg():
  return methods.Method('fed_avg')
