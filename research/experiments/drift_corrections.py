"""Compares client drift corrections on digits split over clients of unlike labels.

usage: python -m research.experiments.drift_corrections --data_dir=DIR [--flag=value ...]

Trains FedAvg, SCAFFOLD, FedDyn, AdaBest and AdaBest with Yogi on the server, in AdaBest's setting
(scripts/configs/drift_*.flags), for each alpha and seed; then writes RESULTS.md, a table of the
test accuracy after the last round, and RESULTS.png, the test accuracy by round. The same command
again skips what is complete and goes on with the rest; Ctrl-C ends after saving.

  python -m research.experiments.drift_corrections --data_dir=DIR --results=results/drift
  python -m research.experiments.drift_corrections --tasks=digits --seeds=0      No data needed.
  python -m research.experiments.drift_corrections --report_only    Of what is complete.
"""

import json
import math
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, flags, grid, shared_runs
from tff_adaptive import costs, registry
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import curves, style, tables
from tff_adaptive.runs import run as run_lib

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list('tasks', ['digits', 'mnist'], 'digits, mnist or both.', flag_values=_FLAGS)
absl_flags.DEFINE_list('seeds', ['0', '1', '2'], 'Seeds, of the partition too.', flag_values=_FLAGS)
absl_flags.DEFINE_list('alphas', ['0.03', '0.3', 'inf'], 'inf is IID.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'data_dir', None, 'Folder with mnist.npz or mnist_digits.npz.', flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'output_dir', 'runs/drift', "Where the runs' folders go.", flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'results', 'results/drift', 'Where to write: RESULTS.md and RESULTS.png.', flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=_FLAGS)

_TITLES = {'mnist': 'MNIST', 'digits': "scikit-learn's digits"}
_MNIST_FILES = ('mnist.npz', 'mnist_digits.npz')
# What a row is called, by the algorithm and the server optimizer.
_ROWS = {
  ('fed_avg', 'sgd'): 'FedAvg',
  ('scaffold', 'sgd'): 'SCAFFOLD',
  ('fed_dyn', 'sgd'): 'FedDyn',
  ('ada_best', 'sgd'): 'AdaBest',
  ('ada_best', 'yogi'): 'AdaBest x Yogi',
}
_COLORS = dict(zip(_ROWS.values(), ('#222222', '#0072B2', '#009E73', '#D55E00', '#CC79A7')))

Cells = dict[tuple[str, str, str], list[run_lib.Run]]  # (task, row, alpha) -> runs by seed.


@command.entry('drift_corrections.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  _check_flags()
  command.check_output('results', _FLAGS.results)
  if not _FLAGS.report_only:
    code = shared_runs.train_all(_jobs(), ['task_option', 'algorithm'])
    if code:
      return code
  cells = collect(_FLAGS.output_dir)
  atomic_files.write_text(f'{_FLAGS.results}.md', report(cells))
  draw(f'{_FLAGS.results}.png', cells)
  command.show(f'{_FLAGS.results}.md and {_FLAGS.results}.png are written.\n')
  return command.DONE


def _check_flags() -> None:
  """ValueError if a flag is bad: the sweeps would find some of it after hours only."""
  for flag in ('tasks', 'seeds', 'alphas'):
    if not _FLAGS[flag].value:
      raise ValueError(f'--{flag}= is empty: give one value or more, or leave it out.')
  unknown = [task for task in _FLAGS.tasks if task not in _TITLES]
  if unknown:
    raise ValueError(f'{unknown[0]!r} is not known; the tasks are digits and mnist.')
  for seed in _FLAGS.seeds:
    if not seed.isdecimal():
      raise ValueError(f'--seeds={seed}: give whole numbers from 0 on, such as 0,1,2.')
  for alpha in _FLAGS.alphas:
    if not _number(alpha) > 0:
      raise ValueError(f'--alphas={alpha}: give numbers above 0, such as 0.3, or inf.')
  if 'mnist' in _FLAGS.tasks and not _FLAGS.report_only:
    paths = [os.path.join(_FLAGS.data_dir or '', name) for name in _MNIST_FILES]
    if not _FLAGS.data_dir or not any(map(os.path.isfile, paths)):
      raise ValueError(
        f'mnist needs a folder with {" or ".join(_MNIST_FILES)}: give --data_dir, or'
        ' --tasks=digits.'
      )


def _number(text: str) -> float:
  try:
    return float(text)
  except ValueError:
    return math.nan


def _jobs() -> dict[str, list[grid.Settings]]:
  """The runs of each sweep by its folder, one for each task and server optimizer."""
  configs = str(pathlib.Path(__file__).parents[2] / 'scripts' / 'configs')
  found = {}
  for task in _FLAGS.tasks:
    for server in ('sgd', 'yogi'):
      path = os.path.join(configs, f'drift_{task}.flags')
      given = flags.parse(['drift_corrections.py', f'--flagfile={path}']) or {}
      if _FLAGS.data_dir and task == 'mnist':
        given['data_dir'] = _FLAGS.data_dir
      if server == 'yogi':
        given['server_optimizer'] = 'yogi'
      # Seed by seed: what is stopped early has all algorithms of its first seeds.
      axes = {
        'seed': _FLAGS.seeds,
        'task_option': [f'alpha={alpha}' for alpha in _FLAGS.alphas],
        'algorithm': [algorithm for algorithm, its_server in _ROWS if its_server == server],
      }
      folder = os.path.join(_FLAGS.output_dir, f'{task}_{server}')
      found[folder] = grid.jobs(folder, axes, given)
  return found


def collect(folder: str) -> Cells:
  """Reads the complete runs.

  Args:
    folder: Where the runs' folders lie, at any depth.

  Returns:
    (task, row, alpha) -> its runs, in the order of their seeds.

  Raises:
    ValueError: If there is none.
  """
  cells: Cells = {}
  for run in sorted(run_lib.find_runs([folder]), key=lambda run: run.settings['seed']):
    if run.summary()['is_complete'] and os.path.exists(os.path.join(run.folder, 'summary.json')):
      task = run.settings['task'].partition('_')[0]
      row = _ROWS.get((run.settings['algorithm'], run.settings['server_optimizer']))
      pairs = dict(pair.split('=', 1) for pair in run.settings['task_option'])
      if row is None or 'alpha' not in pairs:
        raise ValueError(f'{run.folder} is no run of this command: give a folder of its own.')
      cells.setdefault((task, row, pairs['alpha']), []).append(run)
  if not cells:
    raise ValueError(f'no run in {folder} is complete.')
  return cells


def test_accuracy(run: run_lib.Run) -> float:
  """Test accuracy in percent, after the last round, of the mean of the client models, theta-bar."""
  with open(os.path.join(run.folder, 'summary.json'), encoding='utf-8') as file:
    test = json.load(file)['test']
  # FedAvg's model is that mean.
  return 100 * test.get('test_inference_accuracy', test['test_accuracy'])


def diverged(run: run_lib.Run) -> bool:
  """Whether updates of clients were not finite in a run; they were left out."""
  return run.summary()['non_finite_clients'] > 0


def report(cells: Cells) -> str:
  """The text of RESULTS.md."""
  members = [run for group in cells.values() for run in group]
  settings = members[0].settings
  introduction = f"""
    Accuracy on the test data in percent, after the last round, of the mean of the client models
    (theta-bar): mean ± sample standard deviation over the seeds, and how many runs that is. A seed
    draws the partition, the initial weights and the cohorts. AdaBest's setting: 110 clients of
    equal size, of which 100 train and 10 are held out (none of them is used: no value was tuned on
    these tasks); labels by Dirichlet(alpha) or IID; perceptron 784-100-100-10;
    {settings['rounds']} rounds of {settings['clients_per_round']} clients,
    {settings['client_epochs']} epochs, batches of {settings['batch_size']}, the last one filled by
    drawing again; client rate {settings['client_learning_rate']:g} x 0.998 a round; weight decay
    {settings['weight_decay']:g}. A run diverged if updates of clients were not finite in it; where
    there are such runs, the mean without them stands next to that of all."""
  parts = ['# Client drift corrections on digits\n\n', _paragraph(introduction)]
  for task in dict.fromkeys(key[0] for key in cells):
    alphas = sorted({key[2] for key in cells if key[0] == task}, key=float)
    heading = ['', *('IID' if alpha == 'inf' else f'alpha = {alpha}' for alpha in alphas)]
    rows = [
      [row, *(_cell(cells.get((task, row, alpha), [])) for alpha in alphas)]
      for row in _ROWS.values()
    ]
    parts.append(f'\n## {_TITLES[task]}\n\n{tables.markdown(heading, rows)}')
  parts += ['\n## Hyperparameters and communication\n\n', _costs(cells), '\n', _origin(members)]
  return ''.join(parts)


def _cell(members: Sequence[run_lib.Run]) -> str:
  if not members:
    return ''

  def spread(runs_: Sequence[run_lib.Run]) -> str:
    return tables.spread([test_accuracy(run) for run in runs_], digits=2)

  healthy = [run for run in members if not diverged(run)]
  text = f'{spread(members)} ({len(members)}'
  if len(healthy) < len(members):
    without = f'; without: {spread(healthy)}' if healthy else ''
    text += f', {len(members) - len(healthy)} diverged{without}'
  return text + ')'


def _costs(cells: Cells) -> str:
  """A table of what distinguishes the algorithms: hyperparameters and what clients exchange."""
  heading = ['', 'mu', 'beta', 'server rate', 'tau', 'MB down, up a client and round']
  rows = []
  for row in _ROWS.values():
    members = [group for key, group in cells.items() if key[1] == row]
    if members:
      settings, n = members[0][0].settings, members[0][0].config['num_parameters']
      names = ('mu', 'beta', 'server_learning_rate', 'tau')
      values = ['' if settings[name] is None else f'{settings[name]:g}' for name in names]
      counts = registry.algorithm(settings['algorithm']).counts(settings)
      cost = costs.CostModel(counts, n, 1).round([1]).columns()
      rows.append([row, *values, f'{cost["megabytes_down"]:.2f}, {cost["megabytes_up"]:.2f}'])
  remark = """
    beta with Yogi is the default of that composition: see `results/ada_best_beta.md`."""
  return f'{tables.markdown(heading, rows)}\n{_paragraph(remark)}'


def _origin(members: Sequence[run_lib.Run]) -> str:
  """The commands, the machine, the dates and the versions."""
  versions = dict(members[0].config['versions'])
  dates = sorted({run.config['started'][:10] for run in members})
  revisions = sorted({str(run.config['git_revision'])[:10] for run in members})
  seconds = sum(run.summary()['seconds_training'] for run in members)
  return _paragraph(f"""
    Made by `python -m research.experiments.drift_corrections --data_dir=DIR`, with DIR holding
    `mnist_digits.npz` (60,000
    and 10,000 images). It gives `scripts/train.py` the flags of `scripts/configs/drift_mnist.flags`
    or `drift_digits.flags`, with `--algorithm`, `--server_optimizer`, `--seed` and
    `--task_option=alpha=...`. {len(members)} runs, {seconds / 60:.0f} minutes of training on
    {len(os.sched_getaffinity(0))} CPU cores shared with other work; {' to '.join(dates)};
    revision {', '.join(revisions)};
    {', '.join(f'{name} {version}' for name, version in versions.items())}.""")


def _paragraph(text: str) -> str:
  """Returns a text on one line."""
  return ' '.join(text.split()) + '\n'


def draw(path: str, cells: Cells) -> None:
  """Draws the test accuracy of theta-bar by round: a row for each task, a column for each alpha.

  Args:
    path: The picture to write, atomically.
    cells: As `collect` returns them.
  """
  from matplotlib import (
    figure as figure_lib,  # Slow to import and needed here only.
    lines as lines_lib,
  )

  names = list(dict.fromkeys(key[0] for key in cells))
  alphas = sorted({key[2] for key in cells}, key=float)
  figure = figure_lib.Figure(figsize=(3.6 * len(alphas), 3.1 * len(names)), layout='constrained')
  grid = figure.subplots(len(names), len(alphas), squeeze=False, sharex=True)
  for task, line in zip(names, grid):
    for alpha, axes in zip(alphas, line):
      for row, color in _COLORS.items():
        _draw_curve(axes, color, cells.get((task, row, alpha), []))
      axes.set_title(f'{_TITLES[task]}, {"IID" if alpha == "inf" else f"alpha = {alpha}"}')
      axes.grid(alpha=0.3)
      axes.set_ylim(*_limits(cells, task))
    line[0].set_ylabel('test accuracy, %')
  for axes in grid[-1]:
    axes.set_xlabel('round')
  lines = [lines_lib.Line2D([], [], color=color) for color in _COLORS.values()]
  style.legend(figure, lines, list(_COLORS))
  with atomic_files.atomic_path(path) as temporary:
    figure.savefig(temporary, dpi=120)


def _draw_curve(axes: Any, color: str, members: Sequence[run_lib.Run]) -> None:
  """Draws mean and standard deviation of a cell; runs that diverged dotted, one by one."""
  if not members:
    return
  has_mean = 'inference_accuracy' in members[0].rows[0]
  column = 'inference_accuracy' if has_mean else 'validation_accuracy'
  healthy = [run for run in members if not diverged(run)]
  for run in members:
    if diverged(run):
      rounds, accuracy, _ = curves.mean_curve([run], column)
      axes.plot(rounds, 100 * accuracy, color=color, linewidth=0.8, linestyle=':')
  if healthy:
    rounds, mean, std = curves.mean_curve(healthy, column)
    axes.plot(rounds, 100 * mean, color=color, linewidth=1.3)
    axes.fill_between(
      rounds, 100 * (mean - std), 100 * (mean + std), color=color, alpha=0.15, linewidth=0
    )


def _limits(
  cells: Mapping[tuple[str, str, str], Sequence[run_lib.Run]], task: str
) -> tuple[float, float]:
  """Limits of the accuracy in a task's panels: from well below the worst end to above the best."""
  members = [run for key, group in cells.items() if key[0] == task for run in group]
  ends = [test_accuracy(run) for run in members if not diverged(run)] or [0.0, 100.0]
  low = max(0.0, min(ends) - 2.5 * (max(ends) - min(ends)) - 1)
  return low, max(ends) + 0.1 * (max(ends) - low)


if __name__ == '__main__':
  sys.exit(main())
