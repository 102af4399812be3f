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
import os
import sys
from collections.abc import Mapping, Sequence

from absl import flags as absl_flags

from scripts.cli import command, grid
from tff_adaptive import costs, registry
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import curves, style, tables
from tff_adaptive.runs import run as run_lib

from . import frame

_FLAGS = frame.flags('drift')
absl_flags.DEFINE_list('tasks', ['digits', 'mnist'], 'digits, mnist or both.', flag_values=_FLAGS)
absl_flags.DEFINE_list('alphas', ['0.03', '0.3', 'inf'], 'inf is IID.', flag_values=_FLAGS)

_TITLES = {'mnist': 'MNIST', 'digits': "scikit-learn's digits"}
# What a row is called, by the algorithm and the server optimizer.
_ROWS = {
  ('fed_avg', 'sgd'): 'FedAvg',
  ('scaffold', 'sgd'): 'SCAFFOLD',
  ('fed_dyn', 'sgd'): 'FedDyn',
  ('ada_best', 'sgd'): 'AdaBest',
  ('ada_best', 'yogi'): 'AdaBest x Yogi',
}
_COLORS = dict(zip(_ROWS.values(), ('#222222', '#0072B2', '#009E73', '#D55E00', '#CC79A7')))

Cells = Mapping[tuple[str, str, str], list[run_lib.Run]]  # (task, row, alpha) -> runs by seed.


@command.entry('drift_corrections.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  for alpha in _FLAGS.alphas:
    try:
      is_good = float(alpha) > 0
    except ValueError:
      is_good = False
    if not is_good:
      raise ValueError(f'--alphas={alpha}: give numbers above 0, such as 0.3, or inf.')
  files = {task: frame.MNIST if task == 'mnist' else () for task in _FLAGS.tasks}
  frame.check(_FLAGS, {'tasks': _TITLES}, files)
  return frame.run(_FLAGS, [(jobs, ['task_option', 'algorithm'])], _write)


def jobs() -> frame.Jobs:
  """The runs of each sweep by its folder, one for each task and server optimizer."""
  found = {}
  for task in _FLAGS.tasks:
    for server in ('sgd', 'yogi'):
      given = frame.settings(f'--flagfile={frame.CONFIGS}/drift_{task}.flags')
      given |= {'data_dir': _FLAGS.data_dir} if _FLAGS.data_dir and task == 'mnist' else {}
      given |= {'server_optimizer': 'yogi'} if server == 'yogi' else {}
      # Seed by seed: what is stopped early has all algorithms of its first seeds.
      axes = {
        'seed': _FLAGS.seeds,
        'task_option': [f'alpha={alpha}' for alpha in _FLAGS.alphas],
        'algorithm': [algorithm for algorithm, its_server in _ROWS if its_server == server],
      }
      folder = os.path.join(_FLAGS.output_dir, f'{task}_{server}')
      found[folder] = grid.jobs(folder, axes, given)
  return found


def _write() -> None:
  cells = collect(_FLAGS.output_dir)
  atomic_files.write_text(f'{_FLAGS.results}.md', report(cells))
  draw(f'{_FLAGS.results}.png', cells)


def collect(folder: str) -> Cells:
  """Reads the complete runs: (task, row, alpha) -> its runs, in the order of their seeds."""

  def key(run: run_lib.Run) -> tuple[str, str, str] | None:
    pairs = dict(pair.split('=', 1) for pair in run.settings['task_option'])
    row = _ROWS[run.settings['algorithm'], run.settings['server_optimizer']]
    has_ended = os.path.exists(os.path.join(run.folder, 'summary.json'))
    place = (run.settings['task'].partition('_')[0], row, pairs['alpha'])
    return place if has_ended else None

  return frame.collect(folder, key)[0]


def test_accuracy(run: run_lib.Run) -> float:
  """That of the mean of the client models, theta-bar, after the last round."""
  with open(os.path.join(run.folder, 'summary.json'), encoding='utf-8') as file:
    test = json.load(file)['test']
  # FedAvg's model is that mean.
  return test.get('test_inference_accuracy', test['test_accuracy'])


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
  parts = ['# Client drift corrections on digits\n\n', frame.paragraph(introduction)]
  for task in dict.fromkeys(key[0] for key in cells):
    alphas = _alphas(cells, task)
    heading = ['', *('IID' if alpha == 'inf' else f'alpha = {alpha}' for alpha in alphas)]
    rows = [
      [row, *(_cell(cells.get((task, row, alpha), [])) for alpha in alphas)]
      for row in _ROWS.values()
    ]
    parts.append(f'\n## {_TITLES[task]}\n\n{tables.markdown(heading, rows)}')
  remark = 'beta with Yogi is the default of that composition: see `results/ada_best_beta.md`.'
  parts += ['\n## Hyperparameters and communication\n\n', _costs(cells), f'\n{remark}\n\n']
  origin = """, with DIR holding `mnist_digits.npz` (60,000 and 10,000 images). It gives
    `scripts/train.py` the flags of `scripts/configs/drift_mnist.flags` or `drift_digits.flags`,
    with `--algorithm`, `--server_optimizer`, `--seed` and `--task_option=alpha=...`"""
  made = frame.origin('drift_corrections', ' --data_dir=DIR', members)
  return ''.join([*parts, made.replace('DIR`', f'DIR`{frame.paragraph(origin).strip()}', 1)])


def _alphas(cells: Cells, task: str) -> list[str]:
  return sorted({key[2] for key in cells if key[0] == task}, key=float)


def _cell(members: Sequence[run_lib.Run]) -> str:
  if not members:
    return ''
  healthy = [run for run in members if not diverged(run)]
  text = f'{frame.percent(map(test_accuracy, members))} ({len(members)}'
  if len(healthy) < len(members):
    without = f'; without: {frame.percent(map(test_accuracy, healthy))}' if healthy else ''
    text += f', {len(members) - len(healthy)} diverged{without}'
  return text + ')'


def _costs(cells: Cells) -> str:
  """A table of what distinguishes the algorithms: hyperparameters and what clients exchange."""
  names = ('mu', 'beta', 'server_learning_rate', 'tau')
  rows = []
  for row in _ROWS.values():
    run = next((group[0] for key, group in cells.items() if key[1] == row), None)
    if run is not None:
      values = ['' if run.settings[name] is None else f'{run.settings[name]:g}' for name in names]
      counts = registry.algorithm(run.settings['algorithm']).counts(run.settings)
      cost = costs.CostModel(counts, run.config['num_parameters'], 1).round([1]).columns()
      rows.append([row, *values, f'{cost["megabytes_down"]:.2f}, {cost["megabytes_up"]:.2f}'])
  heading = ['', 'mu', 'beta', 'server rate', 'tau', 'MB down, up a client and round']
  return tables.markdown(heading, rows)


def draw(path: str, cells: Cells) -> None:
  """Draws the test accuracy of theta-bar by round: a row for each task, a column for each alpha.

  Args:
    path: The picture to write, atomically.
    cells: As `collect` returns them.
  """
  tasks = list(dict.fromkeys(key[0] for key in cells))
  alphas = sorted({key[2] for key in cells}, key=float)
  figure, panels = style.figure(len(tasks), len(alphas), width=3.6, height=3.1)
  lines = {}
  for task, line in zip(tasks, panels):
    for alpha, axes in zip(alphas, line):
      for row, color in _COLORS.items():
        members = cells.get((task, row, alpha), [])
        healthy = [run for run in members if not diverged(run)]
        # The mean of those that did not diverge; the others dotted, one by one.
        for some in [healthy, *([run] for run in members if diverged(run))]:
          if some:
            has_mean = 'inference_accuracy' in some[0].rows[0]
            column = 'inference_accuracy' if has_mean else 'validation_accuracy'
            rounds, mean, std = curves.mean_curve(some, column)
            width, kind = (1.3, '-') if some is healthy else (0.8, ':')
            look = {'color': color, 'linewidth': width, 'linestyle': kind}
            (lines[row],) = axes.plot(rounds, 100 * mean, **look)
            band = 100 * (mean - std), 100 * (mean + std)
            axes.fill_between(rounds, *band, color=color, alpha=0.15)
      axes.set_title(f'{_TITLES[task]}, {"IID" if alpha == "inf" else f"alpha = {alpha}"}')
      axes.grid(alpha=0.3)
      axes.set_ylim(*_limits(cells, task))
      axes.set_xlabel('round')
    line[0].set_ylabel('test accuracy, %')
  style.legend(figure, list(lines.values()), list(lines))
  style.write(figure, path)


def _limits(cells: Cells, task: str) -> tuple[float, float]:
  """Limits of the accuracy in a task's panels: from well below the worst end to above the best."""
  members = [run for key, group in cells.items() if key[0] == task for run in group]
  ends = [100 * test_accuracy(run) for run in members if not diverged(run)] or [0.0, 100.0]
  low = max(0.0, min(ends) - 2.5 * (max(ends) - min(ends)) - 1)
  return low, max(ends) + 0.1 * (max(ends) - low)


if __name__ == '__main__':
  sys.exit(main())
