"""Tables of any setting by any other, and of tasks and participation by algorithm as in papers."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from tff_adaptive.reports import number_texts, report, scores, table as table_lib, tables
from tff_adaptive.runs import names, run as run_lib

# What is not a setting by itself, but follows from some.
DERIVED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
  'algorithm': names.composition,
  'correction': names.correction,
  'server_optimizer': names.server_optimizer,
}
_ADA_BEST_ORDER = ('FedAvg', 'FedDyn', 'SCAFFOLD', 'SCAFFOLD/m', 'AdaBest')
# "Adaptive Federated Optimization" (Reddi et al., 2021), Table 1: means over the last 100 rounds.
# "Performance within 0.5 % of the best result for each task is shown in bold".
OPTIMIZERS = ('FedAdagrad', 'FedAdam', 'FedYogi', 'FedAvgM', 'FedAvg')
_WITHIN = 0.5


class _Published(NamedTuple):
  title: str
  metric: str
  factor: float  # By which the metric is multiplied there.
  clients: int  # Data with another number of training clients are not the benchmark.
  figures: tuple[float, ...]  # Of each optimizer.


_FACTORS = {'accuracy': 100, 'recall_at_5': 100, 'mse': 1000}
TASKS = {
  task: _Published(title, metric, _FACTORS[metric], clients, figures)
  for task, title, metric, clients, figures in (
    ('cifar10', 'CIFAR-10', 'accuracy', 500, (72.1, 77.4, 78.0, 77.4, 72.8)),
    ('cifar100', 'CIFAR-100', 'accuracy', 500, (47.9, 52.5, 52.4, 52.4, 44.7)),
    ('emnist_cr', 'EMNIST CR', 'accuracy', 3400, (85.1, 85.6, 85.5, 85.2, 84.9)),
    ('shakespeare', 'Shakespeare', 'accuracy', 715, (57.5, 57.0, 57.2, 57.3, 56.9)),
    ('stackoverflow_nwp', 'SO NWP', 'accuracy', 342477, (23.8, 25.2, 25.2, 23.8, 19.5)),
    ('stackoverflow_lr', 'SO LR', 'recall_at_5', 342477, (67.1, 65.8, 65.9, 36.9, 30.0)),
    ('emnist_ae', 'EMNIST AE', 'mse', 3400, (4.20, 1.01, 0.98, 1.65, 6.47)),
  )
}


class Row(NamedTuple):
  """A row of scores."""

  place: Sequence[str]  # What stands in its first columns.
  found: Mapping[str, scores.Score]  # Scores by column.
  texts: Mapping[str, str]  # Cells by column.
  best: Collection[str] = ()  # The columns that are bold.


def table(
  heading: Sequence[str],
  columns: Sequence[str],
  rows: Sequence[Row],
  runs: Sequence[run_lib.Run],
  title: str,
  **of_note: str,
) -> table_lib.Table:
  """Returns a table of scores, whose note says which settings were the best of several.

  Args:
    heading: Names of the columns that say what the rows are.
    columns: The others.
    rows: The rows.
    runs: All runs.
    title: Over the table.
    **of_note: Options of `scores.note`.
  """
  chosen = {
    f'{" ".join(filter(None, row.place))}, {name}': score.label
    for row in rows
    for name, score in row.found.items()
    if score.label
  }
  first = len(heading)
  return table_lib.Table(
    [*heading, *columns],
    [[*row.place, *(row.texts.get(name, '') for name in columns)] for row in rows],
    frozenset((i, first + columns.index(name)) for i, row in enumerate(rows) for name in row.best),
    title,
    scores.note(chosen, runs, **of_note),
  )


def build(
  runs: Sequence[run_lib.Run], rows: str, columns: str, metric: str | None = None, title: str = ''
) -> report.Report:
  """A row for each value of a setting, a column for each of another.

  A cell is the mean over the last 100 rounds of a column of metrics.csv, or the accuracy on the
  test data after the last round; mean and sample standard deviation over the seeds. The best of
  a column is bold.

  Args:
    runs: The runs; of those of a cell that differ in other settings than the seed, the best on the
      validation data counts.
    rows: A setting, or 'algorithm', 'correction' or 'server_optimizer', as papers call them.
    columns: Another.
    metric: A column of metrics.csv, or 'test_accuracy'; the task's metric on the validation data
      by default.
    title: Over the table.

  Raises:
    ValueError: If the runs do not have the settings, or no values of the metric.
  """
  if rows == columns:
    raise ValueError(f'rows and columns are both {rows}: give two settings.')
  by_validation = tables.default_metric(runs)
  column = metric or by_validation
  cells = _cells(runs, lambda run: _value(run, rows), lambda run: _value(run, columns))
  found = {
    row: {name: scores.best(members, by_validation, column) for name, members in of_row.items()}
    for row, of_row in cells.items()
  }
  column_names = number_texts.in_order(list(dict.fromkeys(_value(run, columns) for run in runs)))
  best = {
    name: scores.is_best({row: of[name] for row, of in found.items() if name in of}, column)
    for name in column_names
  }
  made = [
    Row(
      [row],
      found[row],
      {name: scores.text(score, column) for name, score in found[row].items()},
      [name for name in column_names if row in best[name]],
    )
    for row in number_texts.in_order([*found])
  ]
  when = (
    'after the last round' if column == scores.TEST else f'mean over the {scores.last_rounds(runs)}'
  )
  what = ', '.join(filter(None, (names.metric(column), when, scores.unit(column)[1])))
  heading = [rows.replace('_', ' ')]
  return _report(
    table(heading, column_names, made, runs, title or what.capitalize(), column=column), title
  )


def tasks(runs: Sequence[run_lib.Run], *, title: str = '') -> report.Report:
  """Tasks by optimizers: the form of Table 1 of "Adaptive Federated Optimization".

  A cell is the mean over the last 100 rounds of the task's metric on the validation data, in
  percent, MSE times 1000; bold is what is within 0.5 of the best. Where a run's data have as many
  clients as the benchmark, the paper's row stands below.

  Args:
    runs: Runs of any tasks and algorithms; those that differ in their seed only are averaged, and
      of other differences the best counts.
    title: Over the table.

  Raises:
    ValueError: If runs of a task have no validation metric in common, or runs name no task.
  """
  rows = []
  for (task, options), cells in _cells(runs, _task, _composition).items():
    own = [run for members in cells.values() for run in members]
    column = tables.default_metric(own)
    entry = TASKS.get(task)
    is_published = entry is not None and column == f'validation_{entry.metric}'
    factor = entry.factor if entry and is_published else scores.unit(column)[0]
    digits = 1 if factor == 100 else 4 if factor == 1 else 2
    found = {name: scores.best(members, column) for name, members in cells.items()}
    label = os.path.basename(task) if entry is None else entry.title
    if column != 'validation_accuracy':
      metric = column.removeprefix('validation_').replace('_', ' ')
      label += f' ({metric}{f" x {factor:g}" if factor not in (1, 100) else ""})'
    rows.append(
      Row(
        [label + (f' ({options})' if options else '')],
        found,
        {name: scores.text(score, column, digits, factor) for name, score in found.items()},
        scores.is_best(found, column, within=_WITHIN),
      )
    )
    if entry and is_published and {_clients(run) for run in own} == {entry.clients}:
      figures = zip(OPTIMIZERS, entry.figures)
      rows.append(Row(['published'], {}, {name: f'{n:.{digits}f}' for name, n in figures}))
  caption = title or f'Validation, mean over the {scores.last_rounds(runs)}'
  return _report(table([''], _ordered(runs, OPTIMIZERS), rows, runs, caption), title)


def participation(runs: Sequence[run_lib.Run], *, title: str = '') -> report.Report:
  """Participation, task and heterogeneity by algorithm: the form of Table 2 of "AdaBest".

  A cell is the accuracy on the test data after the last round, in percent, of the mean of the
  client models where the algorithm evaluates that: mean and sample standard deviation over the
  seeds, and how many of the runs diverged, at the end or in some round; 'diverged' where one did at
  the end. The best of a row is bold.

  Args:
    runs: Complete runs of tasks with test data; of those that differ in other settings than the
      seed the best on the validation data counts.
    title: Over the table.

  Raises:
    ValueError: If a run that did not diverge has no figures on test data.
  """

  def place(run: run_lib.Run) -> tuple[float, str, str]:
    clients, (task, options) = _clients(run), _task(run)
    if not clients:
      raise ValueError(f'{run.folder} has no number of clients in config.json.')
    return run.settings['clients_per_round'] / clients, os.path.basename(task), options

  cells = _cells(runs, place, _composition)
  rows = []
  for rate, task, options in sorted(cells, key=lambda at: (*at[:2], number_texts.key(at[2]))):
    found = {
      name: scores.best(members, tables.default_metric(members), scores.TEST)
      for name, members in cells[rate, task, options].items()
    }
    rows.append(
      Row(
        [f'{100 * rate:g} %', task, _heterogeneity(options)],
        found,
        {name: _with_diverged(score) for name, score in found.items()},
        scores.is_best(found, scores.TEST),
      )
    )
  heading = ['participation', 'task', 'setting']
  caption = title or 'Test accuracy after the last round, %'
  columns = _ordered(runs, _ADA_BEST_ORDER)
  return _report(table(heading, columns, rows, runs, caption, column=scores.TEST), title)


def _report(made: table_lib.Table, title: str) -> report.Report:
  return report.Report([made], made.csv(), title=title)


def _cells(
  runs: Sequence[run_lib.Run],
  row: Callable[[run_lib.Run], Any],
  column: Callable[[run_lib.Run], str],
) -> dict[Any, dict[str, list[run_lib.Run]]]:
  """Row -> column -> runs, in the order in which they come."""
  found: dict[Any, dict[str, list[run_lib.Run]]] = {}
  for run in runs:
    found.setdefault(row(run), {}).setdefault(column(run), []).append(run)
  return found


def _value(run: run_lib.Run, setting: str) -> str:
  """A run's value of a setting, as it stands in the table."""
  needed = setting if setting in run.settings else 'algorithm'
  if needed not in run.settings or (setting not in run.settings and setting not in DERIVED):
    raise ValueError(
      f'{run.folder} has no setting {setting!r} in config.json; it has: '
      f'{", ".join(sorted(run.settings))}.'
    )
  if setting in DERIVED:
    return DERIVED[setting](run.settings)
  value = run.settings[setting]
  if isinstance(value, list):
    return ', '.join(map(str, value))
  return 'none' if value is None else str(value)


def _clients(run: run_lib.Run) -> int | None:
  return run.config.get('data', {}).get('clients')


def _composition(run: run_lib.Run) -> str:
  return names.composition(run.settings)


def _task(run: run_lib.Run) -> tuple[str, str]:
  if 'task' not in run.settings or 'algorithm' not in run.settings:
    raise ValueError(f'{run.folder} names no task and algorithm in config.json.')
  return str(run.settings['task']), ', '.join(run.settings.get('task_option') or [])


def _ordered(runs: Sequence[run_lib.Run], first: Sequence[str]) -> list[str]:
  """The optimizers of the runs, those of the paper in its order, then the others."""
  found = dict.fromkeys(map(_composition, runs))
  return [n for n in first if n in found] + [n for n in found if n not in first]


def _with_diverged(score: scores.Score) -> str:
  """'50.00 (1 of 3 diverged)', where some did at some time; 'diverged (1 of 3)' of such a cell."""
  cell = scores.text(score, scores.TEST)
  count = sum(map(scores.is_diverged, score.runs))
  if not count:
    return cell
  return f'{cell} ({count} of {len(score.runs)}{"" if cell == "diverged" else " diverged"})'


def _heterogeneity(options: str) -> str:
  """'alpha=0.03' -> 'alpha = 0.03'; alpha=inf is IID, as the paper has it."""
  shown: list[str] = []
  for pair in filter(None, options.split(', ')):
    name, _, value = pair.partition('=')
    if name == 'alpha':
      shown.insert(0, 'IID' if value.lower() in ('inf', 'infinity') else f'alpha = {value}')
    elif name not in ('validation', 'num_clients'):
      shown.append(pair)
  return ', '.join(shown)
