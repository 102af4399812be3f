"""Draws accuracy by round for results/drift: a panel for each task and alpha.

usage: python -m research.experiments.drift_curves --runs=DIR [--results=RESULTS]

A curve is the mean over the seeds, with a band of one standard deviation: of the mean of the client
models where the run has it, else of the global model, which is the same with SGD of rate 1 on the
server. A run in which updates of clients were not finite has diverged: it is in no mean, and has a
thin dotted line of its own. Writes RESULTS.png, and prints which runs have diverged.
"""

import collections
import dataclasses
import itertools
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.reports import figures, style
from tff_adaptive.runs import groups, run as run_lib

_LABELS = ('algorithm', 'server_optimizer')
_COLUMN = 'inference_accuracy'
_GLOBAL = 'validation_accuracy'
_LIMITS = (84.0, 99.0)  # Of the panels, in percent: differences are between them.
_TASKS = {'digits_skewed': "scikit-learn's digits", 'mnist_skewed': 'MNIST'}
_ALPHAS = {'0.03': 'alpha = 0.03', '0.3': 'alpha = 0.3', 'inf': 'IID'}

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string('runs', 'runs/drift', 'The folder with the runs.', flag_values=_FLAGS)
absl_flags.DEFINE_string('results', 'results/drift/drift', 'Where to write.', flag_values=_FLAGS)

Panels = dict[tuple[str, str], list[run_lib.Run]]  # (task, alpha) -> its runs.


def panels(runs: Sequence[run_lib.Run]) -> Panels:
  """Returns the runs by task and alpha, each in the order of the tables above."""
  by_panel: Panels = collections.defaultdict(list)
  for run in runs:
    options = dict(text.split('=', 1) for text in run.settings['task_option'])
    by_panel[run.settings['task'], options['alpha']].append(_with_column(run))
  places = [place for place in itertools.product(_TASKS, _ALPHAS) if place in by_panel]
  return {place: by_panel[place] for place in places}


def _with_column(run: run_lib.Run) -> run_lib.Run:
  """Returns the run with the global model's accuracy where it has no other."""
  rows = []
  for row in run.rows:
    if _GLOBAL in row:
      row = {_COLUMN: row[_GLOBAL], **row}
    rows.append(row)
  return dataclasses.replace(run, rows=rows)


def has_diverged(run: run_lib.Run) -> bool:
  """Returns whether a client's update was not finite in a round."""
  return any(row.get('non_finite_clients', 0) > 0 for row in run.rows)


def draw(runs: Sequence[run_lib.Run], path: str) -> None:
  """Writes the figure."""
  by_panel = panels(runs)
  tasks, alphas = zip(*by_panel)
  rows = [task for task in _TASKS if task in tasks]
  columns = [alpha for alpha in _ALPHAS if alpha in alphas]
  figure, grid = style.figure(len(rows), len(columns), width=4.2, height=2.9)
  lines = {}
  for (task, alpha), of_panel in by_panel.items():
    axes = grid[rows.index(task)][columns.index(alpha)]
    for number, (label, members) in enumerate(groups.group(of_panel, _LABELS).items()):
      look = style.line(number)
      for run in filter(has_diverged, members):
        of_run = run.curve(_COLUMN)
        values = [100 * value for value in of_run.values()]
        axes.plot([*of_run], values, color=look['color'], linestyle=':', linewidth=0.9)
      healthy = [run for run in members if not has_diverged(run)]
      if not healthy:
        continue
      (curve,) = figures.mean_curves({label: healthy}, _COLUMN)
      accuracy, spread = 100 * curve.mean, 100 * curve.std
      (lines[label],) = axes.plot(curve.x, accuracy, **look)
      low, high = accuracy - spread, accuracy + spread
      axes.fill_between(curve.x, low, high, color=look['color'], alpha=0.15, linewidth=0)
    axes.set_title(f'{_TASKS[task]}, {_ALPHAS[alpha]}', fontsize='medium')
    axes.set_ylim(_LIMITS)
    axes.grid(alpha=0.3)
  for axes in grid[-1]:
    axes.set_xlabel('round')
  for axes in grid[:, 0]:
    axes.set_ylabel('test accuracy, %')
  style.legend(figure, [*lines.values()], [*lines])
  style.write(figure, path)


@command.entry('drift_curves.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.check_output('results', _FLAGS.results)
  runs = run_lib.find_runs([_FLAGS.runs])
  draw(runs, f'{_FLAGS.results}.png')
  for run in filter(has_diverged, runs):
    command.show(f'diverged: {run.folder}\n')
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
