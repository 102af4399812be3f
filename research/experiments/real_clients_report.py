"""What real_clients.py compares, and the tables and the figure of its runs."""

import collections
import functools
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tff_adaptive import registry
from tff_adaptive.reports import figures, report as report_lib, scores, style, tables
from tff_adaptive.runs import run as run_lib

from . import frame


class Task(NamedTuple):
  """A task with its clock."""

  title: str
  config: str  # Its flagfile in scripts/configs.
  options: tuple[str, ...]  # Further flags.
  seconds_per_step: float  # Median, virtual: a round takes some ten.
  deadline: float  # Virtual seconds, which about two thirds of the clients meet.
  target: float  # The accuracy to which time is taken.
  files: tuple[str, ...]  # One of them is needed in the folder of the data.
  client_rates: tuple[str, ...] = ('0.03', '0.1', '0.3')
  # Flags by which rates are not chosen on the test data, if there are others.
  held_out: tuple[str, ...] = ('--task_option=validation=clients',)


TASKS = {
  'digits': Task(
    "scikit-learn's digits, alpha = 0.03",
    'drift_digits',
    ('--task_option=alpha=0.03',),
    *(2.0, 15.0, 0.8, ()),
  ),
  'mnist': Task(
    'MNIST, alpha = 0.03',
    'drift_mnist',
    ('--task_option=alpha=0.03',),
    *(0.15, 15.0, 0.9, ('mnist.npz', 'mnist_digits.npz')),
  ),
  'emnist': Task(
    'EMNIST digits by writer, 2NN',
    'emnist_digits',
    ('--task_option=model=2nn',),
    *(1.7, 15.0, 0.9, ('emnist_all.sqlite',)),
    client_rates=('0.01', '0.03', '0.1'),
    held_out=(),
  ),
}
_NAMES = ('fed_avg', 'fed_prox', 'scaffold', 'fed_dyn', 'ada_best')
ALGORITHMS = {name: registry.ALGORITHMS[name].title for name in _NAMES}
SERVERS = {'sgd': '', 'yogi': ' x Yogi'}
SCENARIOS = {
  'ideal': 'ideal',
  'dropout': '30 % fail',
  'diurnal': 'diurnal',
  'drop': 'deadline, drop',
  'partial': 'deadline, partial',
}
SERVER_RATES = {'sgd': ('1',), 'yogi': ('0.003', '0.01', '0.03')}
BETAS = ('0.6', '0.96')  # Of AdaBest with SGD.
TUNED = ('client_learning_rate', 'server_learning_rate', 'beta')
TUNING = 'tuning'  # The folder of the runs that choose these.
Cells = dict[tuple[str, str, str], list[run_lib.Run]]  # (task, row, scenario) -> runs by seed.
Counts = Mapping[tuple[str, str, str], int]
Value = Callable[[run_lib.Run], float | None]


def collect(folder: str) -> tuple[Cells, Counts]:
  """The complete runs below TASK/SCENARIO/SERVER in a folder by seed, and how many were begun."""
  cells: Cells = {}
  begun: collections.Counter[tuple[str, str, str]] = collections.Counter()
  for run in sorted(run_lib.find_runs([folder]), key=lambda run: run.settings['seed']):
    task, scenario, *_ = [*os.path.relpath(run.folder, folder).split(os.sep), '']
    if task == TUNING:
      continue
    if task not in TASKS or scenario not in SCENARIOS:
      raise ValueError(f'{run.folder} is no run of this command: give a folder of its own.')
    algorithm = ALGORITHMS.get(run.settings['algorithm'], ALGORITHMS['fed_avg'])
    key = task, algorithm + SERVERS[run.settings['server_optimizer']], scenario
    begun[key] += 1
    if run.is_complete:
      cells.setdefault(key, []).append(run)
  if not cells:
    raise ValueError(f'no run in {folder} is complete.')
  return cells, begun


def column_of(run: run_lib.Run, name: str = '{}accuracy') -> str:
  """The column of theta-bar, the mean of the client models; of theta where there is none.

  FedAvg and FedProx have theta only, which with SGD of rate 1 on the server is theta-bar and with
  Yogi is not.
  """
  if name == '{}accuracy':
    has_mean = any('inference_accuracy' in row for row in run.rows)
    return 'inference_accuracy' if has_mean else 'validation_accuracy'
  own = name.format('inference_')
  return own if any(own in row for row in run.rows) else name.format('')


def time_to(run: run_lib.Run, target: float) -> float | None:
  """Virtual seconds until the accuracy by `column_of` was the target; None if it never was."""
  reached = tables.rounds_to(run, column_of(run), target)
  return None if reached is None else run.progress('virtual_seconds')[reached]


def report(cells: Cells, begun: Counts) -> str:
  """The text of RESULTS.md, of what `collect` returns."""
  every = [run for members in cells.values() for run in members]
  settings = every[0].settings
  parts = ['# Clients as they are\n\n', frame.paragraph(_INTRODUCTION.format(**settings))]
  for task in dict.fromkeys(key[0] for key in cells):
    own = [run for key, members in cells.items() if key[0] == task for run in members]
    last = scores.last_rounds(own)
    target = TASKS[task].target
    about: tuple[tuple[str, int, Value], ...] = (
      (f'accuracy on all examples, %, mean of the {last}', 1, _accuracy),
      (
        'accuracy of the worst tenth of the clients that train, %',
        1,
        functools.partial(_last, name='clients_train_{}accuracy_worst_tenth'),
      ),
      (
        'mean accuracy of clients that never trained, %',
        1,
        functools.partial(_last, name='clients_unseen_{}accuracy_mean'),
      ),
      (f'virtual seconds to {100 * target:g} %', 0, functools.partial(time_to, target=target)),
    )
    rounds = ' or '.join(sorted({str(run.settings['rounds']) for run in own}, key=int))
    parts.append(f'\n## {TASKS[task].title}, {rounds} rounds\n')
    for title, digits, value in about:
      parts.append('\n' + _table(cells, begun, task, title, value, digits))
    parts.append('\n' + _chosen(cells, task))
  for task in dict.fromkeys(key[0] for key in begun):
    if not any(key[0] == task for key in cells):
      parts.append(f'\n{TASKS[task].title}: no run is complete.\n')
  lost = sum(run.summary()['non_finite_clients'] > 0 for run in every)
  more = f'In {lost} of them updates of clients were not finite and were left out.'
  parts.append('\n' + frame.origin('real_clients', ' --data_dir=DIR', every, more))
  return ''.join(parts)


_INTRODUCTION = """
  Mean ± sample standard deviation over the seeds, and how many of the runs that were begun that
  is if not all are complete and have a value; of the mean of the client models (theta-bar), but
  of the global model (theta) for FedAvg and FedProx, which with Yogi is not theta-bar. A seed
  draws the partition, the initial weights, the cohorts and the clients' speeds. A round has
  {clients_per_round} clients; a tenth of the clients never trains. In all scenarios the seconds
  per step are log-normal with sigma {speed_sigma:g}, the bandwidths with sigma
  {bandwidth_sigma:g}. 30 % fail: at a random step. Diurnal: each client is there for 30 % of
  every 50 rounds, from a phase of its own. Deadline: about two thirds of the clients can take
  all their steps; the others are dropped, or hand in as many as fit. Rates, and AdaBest's beta
  with SGD, are those that were best, by the accuracy of theta, with ideal clients and a seed
  that does not count; none was tuned for a scenario. Those of EMNIST were chosen on the examples
  that its tables are of: another seed does not change these."""


def _last(run: run_lib.Run, name: str) -> float | None:
  """The last value of a column, in percent."""
  found = next(reversed(run.curve(column_of(run, name)).values()), None)
  return None if found is None else 100 * found


def _accuracy(run: run_lib.Run) -> float | None:
  found = scores.mean_of_last(run, column_of(run))
  return None if found is None else 100 * found


def _table(cells: Cells, begun: Counts, task: str, title: str, value: Value, digits: int) -> str:
  shown = [s for s in SCENARIOS if any(key[0] == task and key[2] == s for key in begun)]
  rows = [a + s for s in SERVERS.values() for a in ALGORITHMS.values()]
  lines = []
  for row in rows:
    keys = [(task, row, scenario) for scenario in shown]
    if any(key in begun for key in keys):
      of_row = [([value(run) for run in cells.get(key, [])], begun.get(key, 0)) for key in keys]
      lines.append([row, *(_cell(values, count, digits) for values, count in of_row)])
  return report_lib.Table(['', *(SCENARIOS[s] for s in shown)], lines, title=title).markdown()


def _chosen(cells: Cells, task: str) -> str:
  """The settings that were chosen with ideal clients."""
  found = {row: members[0].settings for (of, row, _), members in cells.items() if of == task}
  heading = ['', *(name.replace('_', ' ') for name in TUNED)]
  lines = [
    [row, *('' if (v := settings.get(name)) is None else f'{v:g}' for name in TUNED)]
    for row, settings in found.items()
  ]
  return report_lib.Table(heading, lines, title='chosen with ideal clients').markdown()


def _cell(values: Sequence[float | None], begun: int, digits: int) -> str:
  """What a cell's complete runs have, of those that were begun."""
  known = [v for v in values if v is not None and math.isfinite(v)]
  if not begun:
    return ''
  if not values:
    return f'none of {begun} complete'
  if not known:
    return 'never' if len(values) == begun else f'never ({len(values)} of {begun} complete)'
  text = report_lib.spread(known, digits)
  return text if len(known) == begun else f'{text} ({len(known)} of {begun})'


def draw(path: str, cells: Mapping[tuple[str, str, str], Sequence[run_lib.Run]]) -> None:
  """Draws the accuracy by virtual time: a row for each task, a column for each scenario."""
  names = list(dict.fromkeys(key[0] for key in cells))
  shown = [s for s in SCENARIOS if any(key[2] == s for key in cells)]
  figure, axes = style.figure(len(names), len(shown), width=3.4, height=3.0)
  lines = {}
  for i, task in enumerate(names):
    late: list[float] = []  # What the curves have after the first fifth.
    for j, scenario in enumerate(shown):
      panel = axes[i][j]
      for k, server in enumerate(SERVERS.values()):
        for number, algorithm in enumerate(ALGORITHMS.values()):
          members = cells.get((task, algorithm + server, scenario), [])
          if members:
            (curve,) = figures.mean_curves({'': members}, column_of(members[0]), 'virtual_seconds')
            look = {**style.line(number), 'linestyle': ('-', '--')[k], 'linewidth': 1.1}
            (drawn,) = panel.plot(curve.x, 100 * curve.mean, **look)
            lines[algorithm + server] = drawn
            late += [100 * y for x, y in zip(curve.x, curve.mean) if x > curve.x[-1] / 5]
      panel.set_title(f'{TASKS[task].title}\n{SCENARIOS[scenario]}', fontsize='small')
      panel.set_xlabel('virtual seconds')
    axes[i][0].set_ylabel('accuracy, %')
    known = [value for value in late if math.isfinite(value)]
    if known:  # What collapsed, or only begins, does not stretch the row's common axis.
      low, high = float(np.quantile(known, 0.1)), max(known)
      for panel in axes[i]:
        panel.set_ylim(low - 0.5 * (high - low) - 0.5, high + 0.1 * (high - low) + 0.5)
  style.legend(figure, list(lines.values()), list(lines))
  style.write(figure, path)
