"""Draws the bench's figure: curves over the rounds, and trials by client rate, of each problem."""

from typing import Any

import numpy as np

from tff_adaptive.reports import style

from . import problems, results as results_lib

_RATE = 'client_learning_rate'
_MOST_LINES = 6
_WIDTH = 3.4
_HEIGHT = 2.6


def draw(results: results_lib.Results) -> Any:
  """Returns the figure; None if no method has values."""
  names = [name for name in results.names if results.on(name)]
  if not names:
    return None
  drawing, axes = style.figure(2, len(names), width=_WIDTH, height=_HEIGHT)
  lines: dict[str, int] = {}
  # A method has the same line in all panels, by the order in which methods first occur.
  for column, name in enumerate(names):
    for key in _methods_of(results, name):
      lines.setdefault(key, len(lines))
      outcome = results.on(name)[key]
      _curve(axes[0, column], outcome, style.line(lines[key]))
      _trials(axes[1, column], outcome, style.marked(lines[key]))
    problem = problems.PROBLEMS[name]
    axes[0, column].set_title(problem.heading, fontsize='small')
    axes[0, column].set_xlabel('round', fontsize='small')
    axes[1, column].set_xlabel('client rate of the trial', fontsize='small')
    axes[1, column].set_xscale('log')
  handles = [drawing.axes[0].plot([], [], **style.line(number))[0] for number in lines.values()]
  style.legend(drawing, handles, [results.titles[key] for key in lines])
  return drawing


def _methods_of(results: results_lib.Results, problem: str) -> list[str]:
  """Returns the methods that are drawn: the subjects, FedAvg and the best built-in one."""
  present = results.on(problem)
  keys = [*results.subjects, *results.compared_with(problem)]
  if not results.subjects:
    ordered = sorted(present, key=lambda key: results.rank_on(problem, key)[0])
    keys = [*keys, *ordered[:2]]
  return [key for key in dict.fromkeys(keys) if key in present][:_MOST_LINES]


def _curve(axes: Any, outcome: results_lib.Outcome, line: dict[str, Any]) -> None:
  """Draws the mean curve of the runs that did not diverge, with the seeds' range as a band."""
  curves = outcome.curves
  if not curves:
    return
  values = outcome.problem.factor * np.array(curves)
  rounds = outcome.problem.rounds_of(values.shape[1])
  axes.plot(rounds, values.mean(axis=0), **line)
  axes.fill_between(
    rounds, values.min(axis=0), values.max(axis=0), color=line['color'], alpha=0.15, linewidth=0
  )


def _trials(axes: Any, outcome: results_lib.Outcome, line: dict[str, Any]) -> None:
  """Draws the values of the trials that did not diverge by their client rates."""
  points = sorted(
    (row.settings[_RATE], outcome.problem.factor * row.value)
    for row in outcome.trials.values()
    if np.isfinite(row.value)
  )
  if points:
    rates, values = zip(*points)
    axes.plot(rates, values, **line)
