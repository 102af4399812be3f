"""Which federated optimizer for which clients: all methods, each with the same search budget.

usage: python -m research.which_optimizer --data_dir=DIR [--flag=value ...]

For each problem and method a search of --trials points (by Optuna) chooses the rates by clients or
examples that do not train and with a seed that does not count; then the best point is trained with
each of --seeds. The methods of --buffered are trained once more, with the same rates and
a server that does not wait. Writes RESULTS.md, RESULTS.csv and RESULTS.png: final values, areas
under the curves, ranks with the critical difference of Friedman's and Nemenyi's tests, sensitivity
to the rates, bytes and virtual seconds. The same command again skips what is complete and goes on
with the rest; Ctrl-C ends after saving. A problem and method whose rows are in RESULTS.csv are not
trained again, so the runs' folders may be elsewhere.

  python -m research.which_optimizer --data_dir=DIR
  python -m research.which_optimizer --problems=digits --methods=fed_avg,fed_yogi --trials=4 \\
      --seeds=1,2    No data needed.
  python -m research.which_optimizer --report_only    Of what is complete, and of RESULTS.csv.
"""

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from research.experiments import frame
from scripts.cli import command, plan as plan_lib, search_space
from scripts.comparison import methods as methods_lib
from tff_adaptive import registry
from tff_adaptive.reports import ranks as ranks_lib, scores, style
from tff_adaptive.runs import run as run_lib


class Problem(NamedTuple):
  """Data, a model and clients.

  Attributes:
    title: What tables call it.
    flags: train.py's.
    tuning: More flags of the runs that choose the rates.
    column: The column of metrics.csv by which these are compared.
    rates: Between which client rates are drawn.
    buffered: With --synchrony=buffered: the size of the buffer and the clients that train.
    files: One of these must be in --data_dir.
  """

  title: str
  flags: Sequence[str]
  tuning: Sequence[str]
  column: str
  rates: tuple[float, float]
  buffered: tuple[int, int]
  files: Sequence[str] = ()


def _examples(title: str, flags: Sequence[str], metric: str, every: int, *more: Any) -> Problem:
  """A problem of few clients: a fifth of each client's examples chooses the rates."""
  tuning = ('--heldout_examples=0.2', f'--rounds_per_client_evaluation={every}')
  return Problem(title, flags, tuning, f'clients_heldout_{metric}_mean', *more)


def _ada_best(title: str, config: str, more: Sequence[str], files: Sequence[str]) -> Problem:
  """A problem in AdaBest's setting: the held-out clients choose the rates."""
  flags = [f'--flagfile={frame.CONFIGS}/{config}.flags', *more]
  tuning = ('--task_option=validation=clients', '--rounds_per_evaluation=5')
  sizes = (0.01, 1.0), (5, 10), files
  test = ('--task_option=validation=test', '--rounds_per_evaluation=5')
  return Problem(title, [*flags, *test], tuning, 'validation_accuracy', *sizes)


def _flamby(task: str, title: str, metric: str, buffered: tuple[int, int], file: str) -> Problem:
  flags = [f'--task={task}', '--rounds=15', '--rounds_per_evaluation=1']
  return _examples(title, flags, metric, 1, (1e-4, 1.0), buffered, (file, f'flamby/{file}'))


PROBLEMS: Mapping[str, Problem] = {
  'fed_heart': _flamby('fed_heart', 'FLamby heart', 'accuracy', (2, 4), 'processed.cleveland.data'),
  'fed_tcga_brca': _flamby('fed_tcga_brca', 'FLamby BRCA', 'concordance', (3, 6), 'brca.csv'),
  'synthetic': _examples(
    'synthetic(1, 1)',
    [
      '--task=synthetic',
      '--task_option=alpha=1',
      '--task_option=beta=1',
      '--client_epochs=5',
      '--rounds=100',
      '--rounds_per_evaluation=5',
    ],
    'accuracy',
    5,
    (1e-3, 0.3),
    (5, 10),
  ),
  'emnist_digits': Problem(
    'EMNIST digits, 300 writers',
    [
      f'--flagfile={frame.CONFIGS}/emnist_digits.flags',
      '--task_option=model=2nn',
      '--rounds=100',
    ],
    ['--heldout_clients=.2', '--rounds_per_client_evaluation=10', '--client_evaluation_clients=60'],
    'clients_unseen_accuracy_by_examples',
    (0.01, 1.0),
    (5, 10),
    ('emnist_all.sqlite',),
  ),
  'mnist': _ada_best(
    'MNIST, alpha = 0.03',
    'drift_mnist',
    ('--task_option=alpha=0.03', '--rounds=40'),
    frame.MNIST,
  ),
  'letters': _ada_best(
    'letters, 1 % of 1,000 clients',
    'participation_letters',
    (
      *('--task_option=letters=26', '--task_option=num_clients=1100'),
      *('--clients_per_round=10', '--rounds=200'),
    ),
    ('letters.npz', 'emnist_letters.npz'),
  ),
  'digits': _ada_best(
    "scikit-learn's digits", 'drift_digits', ('--task_option=alpha=0.03', '--rounds=40'), ()
  ),
}
# What is drawn besides the client rate.
METHODS: Mapping[str, Sequence[str]] = methods_lib.SEARCHED
# The others are compared if they are named.
USUAL = (
  *('fed_avg', 'fed_avgm', 'scaffold', 'fed_nova', 'fed_adagrad', 'fed_adam', 'fed_yogi'),
  *('fed_prox', 'fed_dyn', 'ada_best', 'fed_cm', 'fed_exp', 'mime_lite', 'fed_sam', 'delta_sgd'),
  'fed_ada2',
)
SERVERS = ('synchronous', 'buffered')
_BUFFERED = ['fed_avg', 'fed_yogi', 'scaffold', 'fed_dyn', 'ada_best']
_CLOCK = ('--speed_sigma=1', '--downlink=10', '--uplink=2', '--bandwidth_sigma=0.5')
_CELL = ['problem', 'method']

_FLAGS = frame.flags('which_optimizer')
_lists = (('problems', list(PROBLEMS)[:-1]), ('methods', list(USUAL)), ('buffered', _BUFFERED))
for _name, _default in _lists:
  absl_flags.DEFINE_list(_name, _default, 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('trials', 12, 'Of a search.', lower_bound=2, flag_values=_FLAGS)
absl_flags.DEFINE_integer('jobs', 1, 'Runs at a time.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output_dir', 'runs/which_optimizer', "The runs' folders.", flag_values=_FLAGS
)
_FLAGS.set_default('seeds', '1,2,3,4,5')
_KNOWN = {'problems': PROBLEMS, 'methods': METHODS}


@command.entry('which_optimizer.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  frame.check(_FLAGS, _KNOWN, {name: PROBLEMS[name].files for name in _FLAGS.problems})
  command.check_output('results', _FLAGS.results)
  problems: Sequence[str] = ()
  if not _FLAGS.report_only:
    problems = _FLAGS.problems
  rows = known(f'{_FLAGS.results}.csv')
  for problem in problems:
    methods = [method for method in _FLAGS.methods if (problem, method) not in rows.index]
    for train in (tune, train_finals):
      for method in methods:
        code = train(problem, method)
        if code:
          return code
  table = collect(rows)
  frame.write_rows(f'{_FLAGS.results}.csv', table)
  draw(f'{_FLAGS.results}.png', table)
  frame.write(_FLAGS.results, report(table))
  return command.DONE


def cells() -> Iterator[tuple[str, str]]:
  """The problems and methods that are asked for."""
  yield from itertools.product(_FLAGS.problems, _FLAGS.methods)


def known(path: str) -> pd.DataFrame:
  """The rows of RESULTS.csv, by problem and method, of those that have all their runs."""
  rows = frame.read_rows(path)
  if not rows:
    return pd.DataFrame(index=pd.MultiIndex.from_arrays([[], []], names=_CELL))
  table = pd.DataFrame(rows).set_index(_CELL).sort_index()
  counts = table.groupby(level=_CELL).size()
  servers = [len(servers_of(method)) for _, method in counts.index]
  return table.loc[counts.index[counts >= len(_FLAGS.seeds) * np.array(servers)]]


def servers_of(method: str) -> Sequence[str]:
  """The kinds of servers that a method is trained with: some only with one that waits."""
  if method in _FLAGS.buffered:
    return SERVERS
  return SERVERS[:1]


def space(problem: str, method: str) -> search_space.Space:
  """What the search of a cell varies."""
  low, high = PROBLEMS[problem].rates
  rate = f'client_learning_rate={low:g},{high:g},log'
  names = {text.partition('=')[0]: text for text in (rate, *METHODS[method])}
  axes = search_space.read([], [*names.values()])
  given = _given(problem, method, *PROBLEMS[problem].tuning)
  return search_space.Space(axes, given | {'seed': int(_FLAGS.tuning_seed)})


def tune(problem: str, method: str) -> int:
  """Does the search of a cell. Returns 0, or the exit code of a signal or an error."""
  from scripts.cli import search

  plan = plan_lib.Plan(
    search='tpe', trials=_FLAGS.trials, metric=PROBLEMS[problem].column, jobs=_FLAGS.jobs
  )
  return search.search(_folder('tuning', problem, method), space(problem, method), plan)


def train_finals(problem: str, method: str) -> int:
  """Trains the runs of a cell that count. Returns 0, or the exit code of a signal or an error."""
  from scripts.cli import search

  tuned = _folder('tuning', problem, method)
  point = frame.best(tuned, [*space(problem, method).axes], PROBLEMS[problem].column)
  for kind in servers_of(method):
    given = _given(problem, method, *_CLOCK) | point
    if kind == 'buffered':
      size, concurrency = PROBLEMS[problem].buffered
      given.pop('clients_per_round', None)
      given |= {'synchrony': kind, 'buffer_size': size, 'concurrency': concurrency}
      given['rounds'] *= 2  # Half as many updates make a step.
    seeds = search_space.Space({'seed': _FLAGS.seeds}, given)
    plan = plan_lib.Plan(jobs=_FLAGS.jobs)
    code = search.search(_folder(kind, problem, method), seeds, plan)
    if code:
      return code
  return command.DONE


def _given(problem: str, method: str, *more: str) -> dict[str, Any]:
  if PROBLEMS[problem].files:
    data = [f'--data_dir={_FLAGS.data_dir}']
  else:
    data = []
  return frame.settings(*PROBLEMS[problem].flags, f'--algorithm={method}', *data, *more)


def _folder(stage: str, problem: str, method: str) -> str:
  return os.path.join(_FLAGS.output_dir, stage, problem, method)


def collect(rows: pd.DataFrame) -> pd.DataFrame:
  """A row for each complete run that counts: those that are known, and those of the folders.

  Its value is nan if it diverged; its sensitivity is that of the search that chose its rates.
  """
  records = rows.reset_index().to_dict('records')
  for (problem, method), kind in itertools.product(cells(), SERVERS):
    folder = _folder(kind, problem, method)
    if (problem, method) in rows.index or not os.path.isdir(folder):
      continue
    share = sensitivity(problem, method)
    axes = space(problem, method).axes
    for run in run_lib.find_runs([folder]):
      values = ' '.join(f'{name}={run.settings[name]:.3g}' for name in axes)
      row = {'problem': problem, 'method': method, 'server': kind, **_row(run, share)}
      records.append(row | {'chosen': values})
  if not records:
    raise ValueError(f'no run that counts is in {_FLAGS.output_dir}, nor a row in the CSV file.')
  return pd.DataFrame(records)


def _row(run: run_lib.Run, share: float) -> dict[str, Any]:
  column = f'validation_{run.metric}'
  if any(f'inference_{run.metric}' in row for row in run.rows):
    column = f'inference_{run.metric}'  # Of the mean of the client models, as published.
  curve = [value for t, value in run.curve(column).items() if t]
  is_finite, _, _ = scores.rank([run], column)
  value: float | None = np.nan
  area = np.nan
  if is_finite:
    value = scores.mean_of_last(run, column)
    area = float(np.mean(curve))
  return {
    'seed': run.settings['seed'],
    'value': value,
    'area': area,
    **{name: [*run.progress(name).values()][-1] for name in ('megabytes', 'virtual_seconds')},
    'sensitivity': share,
    'seconds': run.summary()['seconds_training'],
    'started': run.config['started'][:10],
    'revision': str(run.config.get('git_revision'))[:10],
  }


def sensitivity(problem: str, method: str) -> float:
  """The share of a search's trials that come within 2 points (0.02) of its best."""
  tried = run_lib.find_runs([_folder('tuning', problem, method)])
  worths = np.full(len(tried), -np.inf)
  for i, run in enumerate(tried):
    is_finite, _, worth = scores.rank([run], PROBLEMS[problem].column)
    if is_finite:
      worths[i] = worth
  return float(np.mean(worths >= worths.max() - 0.02))


def report(table: pd.DataFrame) -> list[str]:
  """The parts of RESULTS.md."""
  parts = [_INTRODUCTION]
  rows = table[table['server'] == SERVERS[0]]
  for column, title in (('value', 'Final value'), ('area', 'Area under the curve')):
    means = _means(rows, column)
    ranks, p, difference = ranks_lib.average_ranks(
      means.dropna(axis=1, how='all').T.dropna(how='all').T
    )
    order = ranks.mean().sort_values()
    cells = _percents(rows.groupby(['method', 'problem'])[column]).unstack()
    cells = cells.loc[order.index, ranks.index]
    cells.insert(0, 'rank', order.map('{:.1f}'.format))
    parts += [f'## {title}, %\n', frame.table(_titled(cells))]
    test = ''
    if np.isfinite(p):  # It wants three problems.
      test = f"Friedman's test: p = {p:.2g}. "
    what = f'if their average ranks are {difference:.1f} apart (Nemenyi).\n'
    parts.append(f'{test}Two methods differ at 5 % {what}')
  shares = 100 * rows.groupby(['method', 'problem'])['sensitivity'].first()
  cells = shares.map('{:.0f}'.format).unstack(fill_value='').loc[order.index, ranks.index]
  words = '## How much the rates matter: trials of the search within 2 points of its best, %\n'
  parts += [words, frame.table(_titled(cells))]
  both = table[table['method'].isin(_FLAGS.buffered)]
  if not both.empty:
    parts += ['## Cost, and a server that does not wait\n', frame.table(_costs(both))]
  what = f'{len(table)} runs, {table["seconds"].sum() / 60:.0f} minutes of training'
  days = ' to '.join(dict.fromkeys((table['started'].min(), table['started'].max())))
  revisions = ', '.join(sorted(table['revision'].unique()))
  return [*parts, frame.made_by('which_optimizer', what, f'{days}; revision {revisions}')]


def _costs(table: pd.DataFrame) -> pd.DataFrame:
  """Values and costs of a run by problem, method and kind of server."""
  grouped = table.groupby(['problem', 'method', 'server'], sort=False)
  cells = pd.DataFrame({'value, %': _percents(grouped['value'])})
  for column in ('megabytes', 'virtual_seconds'):
    numbers = grouped[column].mean()
    cells[column.replace('_', ' ')] = numbers.map(lambda x: f'{x:,.1f}' if x >= 1 else f'{x:.2g}')
  return cells


def _percents(grouped: Any) -> pd.Series:
  """Mean and sample standard deviation, in percent, of each group's runs that did not diverge."""
  mean = (100 * grouped.mean()).map('{:.1f}'.format)
  deviation = (100 * grouped.std()).map('{:.1f}'.format)
  lost = (grouped.size() - grouped.count()).map(lambda n: f', {n} diverged' if n else '')
  return mean + ' ± ' + deviation + lost


def _titled(cells: pd.DataFrame) -> pd.DataFrame:
  """A table in which methods and problems have their titles."""
  titles = {name: registry.algorithm(name).title for name in METHODS}
  titles |= {name: problem.title for name, problem in PROBLEMS.items()}
  return cells.rename(index=titles, columns=titles)


_INTRODUCTION = frame.paragraph("""
  Means ± sample standard deviations over the seeds; accuracy, concordance index on BRCA. A method
  with a run that diverged has the last rank. Each method had the same number of trials to find its
  rates (and mu, beta, tau, ... where it has them), judged by clients or examples that do not train.
  SCAFFOLD, FedDyn, AdaBest and their variants are evaluated at the mean of the client models,
  FedExP at that of the last two global models, the others at the global model.
""")


def draw(path: str, table: pd.DataFrame) -> None:
  """Writes the figure: average ranks with the critical difference, and ranks by problem."""
  ranks, _, difference = ranks_lib.average_ranks(
    _means(table[table['server'] == SERVERS[0]], 'value')
  )
  order = ranks.mean().sort_values()
  picture, (axes,) = style.figure(1, 2, height=0.3 * len(order) + 1)
  labels = [registry.algorithm(name).title for name in order.index]
  rows = np.arange(len(order))
  axes[0].scatter(order, rows, color='#0072B2', zorder=3)
  axes[0].axvspan(order.iloc[0], order.iloc[0] + difference, color='#0072B2', alpha=0.15)
  axes[0].set_title('average rank; shaded: not distinguishable from the best at 5 %', fontsize=9)
  axes[1].imshow(ranks[order.index].T, aspect='auto', cmap='viridis_r')
  for (row, column), rank in np.ndenumerate(ranks[order.index].T.to_numpy()):
    color = 'white' if rank > len(order) / 2 else 'black'
    axes[1].text(column, row, f'{rank:.0f}', ha='center', va='center', fontsize=8, color=color)
  titles = [PROBLEMS[name].title for name in ranks.index]
  axes[1].set_xticks(range(len(titles)), titles, rotation=20, ha='right', fontsize=8)
  axes[1].set_title('rank by problem', fontsize=9)
  for one in axes:
    one.set_yticks(rows, labels, fontsize=8)
    one.set_ylim(len(order) - 0.5, -0.5)
  style.write(picture, path)


def _means(table: pd.DataFrame, column: str) -> pd.DataFrame:
  """Means over the seeds: a row a problem, a column a method."""
  grouped = table.groupby(['problem', 'method'])[column]
  means = grouped.agg(lambda rows: rows.mean(skipna=False)).unstack()
  asked = [name for name in _FLAGS.methods if name in means]
  return means.loc[[name for name in _FLAGS.problems if name in means.index], asked]


if __name__ == '__main__':
  sys.exit(main())
