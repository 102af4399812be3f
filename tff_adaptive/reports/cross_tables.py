"""Tables of any setting by any other, and of tasks and participation by algorithm as in papers."""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tff_adaptive.reports import report, scores, tables
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
K = TypeVar('K')


class _Published(NamedTuple):
  title: str
  # Data of another size are not the benchmark: training clients, and examples as the task counts.
  data: tuple[int, int]
  figures: tuple[float, ...]  # Of each optimizer.
  metric: str = 'accuracy'
  factor: float = 100  # By which the metric is multiplied there.


_STACK_OVERFLOW = 342_477, 135_818_730
TASKS = {
  'cifar10': _Published('CIFAR-10', (500, 50_000), (72.1, 77.4, 78.0, 77.4, 72.8)),
  'cifar100': _Published('CIFAR-100', (500, 50_000), (47.9, 52.5, 52.4, 52.4, 44.7)),
  'emnist_cr': _Published('EMNIST CR', (3400, 671_585), (85.1, 85.6, 85.5, 85.2, 84.9)),
  'shakespeare': _Published('Shakespeare', (715, 37_784), (57.5, 57.0, 57.2, 57.3, 56.9)),
  'stackoverflow_nwp': _Published('SO NWP', _STACK_OVERFLOW, (23.8, 25.2, 25.2, 23.8, 19.5)),
  'stackoverflow_lr': _Published(
    'SO LR', _STACK_OVERFLOW, (67.1, 65.8, 65.9, 36.9, 30.0), 'recall_at_5'
  ),
  'emnist_ae': _Published(
    'EMNIST AE', (3400, 671_585), (4.20, 1.01, 0.98, 1.65, 6.47), 'mse', 1000
  ),
}


class Row(NamedTuple):
  """A row of scores."""

  place: Sequence[str]  # What stands in its first columns.
  found: Mapping[str, scores.Score]  # Scores by column.
  texts: Mapping[str, str]  # Cells by column.
  best: Collection[str] = ()  # The columns that are bold.


def row(
  place: Sequence[str],
  found: Mapping[str, scores.Score],
  column: str,
  show: Callable[[scores.Score, str], str] = scores.text,
  within: float = 0.0,
) -> Row:
  """Returns a row of scores of a column, of which the best, and those `within` of it, are bold."""
  texts = {name: show(score, column) for name, score in found.items()}
  return Row(place, found, texts, scores.is_best(found, column, within))


def table(
  heading: Sequence[str],
  columns: Sequence[str],
  rows: Sequence[Row],
  runs: Sequence[run_lib.Run],
  title: str,
  **of_note: str,
) -> report.Table:
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
  cells = [[*row.place, *(row.texts.get(name, '') for name in columns)] for row in rows]
  bold = ((i, len(heading) + columns.index(c)) for i, row in enumerate(rows) for c in row.best)
  note = scores.note(chosen, runs, **of_note)
  return report.Table([*heading, *columns], cells, frozenset(bold), title, note)


def build(
  runs: Sequence[run_lib.Run], rows: str, columns: str, metric: str | None = None, title: str = ''
) -> report.Report:
  """A row for each value of a setting, a column for each of another.

  A cell is the mean over the last rounds of a column of metrics.csv, or the accuracy on the
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
  found = {
    name: best(members, lambda run: _value(run, columns), by_validation, column)
    for name, members in split(runs, lambda run: _value(run, rows)).items()
  }
  shown = report.in_order(list(dict.fromkeys(_value(run, columns) for run in runs)))
  bold = {  # The best of each column.
    name: scores.is_best({r: of[name] for r, of in found.items() if name in of}, column)
    for name in shown
  }
  made = [
    row([r], found[r], column)._replace(best=[name for name in shown if r in bold[name]])
    for r in report.in_order([*found])
  ]
  when = f'mean over the {scores.last_rounds(runs)}'
  parts = names.metric(column), 'after the last round' if column == scores.TEST else when
  what = ', '.join(filter(None, (*parts, scores.unit(column)[1])))
  heading = [rows.replace('_', ' ')]
  return _report(
    table(heading, shown, made, runs, title or what.capitalize(), column=column), title
  )


def tasks(runs: Sequence[run_lib.Run], *, title: str = '') -> report.Report:
  """Tasks by optimizers: the form of Table 1 of "Adaptive Federated Optimization".

  A cell is the mean over the last rounds of the task's metric on the validation data, in
  percent, MSE times 1000; bold is what is within 0.5 of the best. Where the runs' data
  are all of the benchmark's, by their clients and examples, the paper's row stands below.

  Args:
    runs: Runs of any tasks and algorithms; those that differ in their seed only are averaged, and
      of other differences the best counts.
    title: Over the table.

  Raises:
    ValueError: If runs of a task have no validation metric in common, or runs name no task.
  """
  rows = []
  for (task, options), own in split(runs, _task).items():
    column = tables.default_metric(own)
    entry = TASKS.get(task)
    is_published = entry is not None and column == f'validation_{entry.metric}'
    factor = entry.factor if entry and is_published else scores.unit(column)[0]
    digits = 1 if factor == 100 else 4 if factor == 1 else 2
    found = best(own, _composition, column)
    label = os.path.basename(task) if entry is None else entry.title
    if column != 'validation_accuracy':
      metric = column.removeprefix('validation_').replace('_', ' ')
      label += f' ({metric}{f" x {factor:g}" if factor not in (1, 100) else ""})'
    show = functools.partial(scores.text, digits=digits, factor=factor)
    place = [label + (f' ({options})' if options else '')]
    rows.append(row(place, found, column, show, _WITHIN))
    if entry and is_published and {_size(run) for run in own} == {entry.data}:
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

  def place_of(run: run_lib.Run) -> tuple[float, str, str]:
    (clients, _), (task, options) = _size(run), _task(run)
    cohort, share = map(run.settings.get, ('clients_per_round', 'participation'))
    if not (clients and (cohort or share)):
      raise ValueError(f'{run.folder} has no number of clients in config.json.')
    return share or float(cohort or 0) / clients, os.path.basename(task), options

  by_place = split(runs, place_of)
  rows = []
  for rate, task, options in sorted(by_place, key=lambda at: (*at[:2], report.number_key(at[2]))):
    own = by_place[rate, task, options]
    found = best(own, _composition, tables.default_metric(own), scores.TEST)
    place = [f'{100 * rate:g} %', task, _heterogeneity(options)]
    rows.append(row(place, found, scores.TEST, _with_diverged))
  heading = ['participation', 'task', 'setting']
  caption = title or 'Test accuracy after the last round, %'
  columns = _ordered(runs, _ADA_BEST_ORDER)
  return _report(table(heading, columns, rows, runs, caption, column=scores.TEST), title)


def _report(made: report.Table, title: str) -> report.Report:
  return report.Report([made], made.csv(), title=title)


def split(
  runs: Iterable[run_lib.Run], key: Callable[[run_lib.Run], K]
) -> dict[K, list[run_lib.Run]]:
  """Runs by a property of theirs, in the order in which they come."""
  found: dict[K, list[run_lib.Run]] = {}
  for run in runs:
    found.setdefault(key(run), []).append(run)
  return found


def best(
  runs: Iterable[run_lib.Run],
  key: Callable[[run_lib.Run], K],
  by: str,
  column: str | None = None,
) -> dict[K, scores.Score]:
  """The best scores by a property of the runs: see `scores.best`."""
  return {name: scores.best(cell, by, column) for name, cell in split(runs, key).items()}


def _value(run: run_lib.Run, setting: str) -> str:
  """A run's value of a setting, as it stands in the table."""
  if ('algorithm' if setting in DERIVED else setting) not in run.settings:
    raise ValueError(
      f'{run.folder} has no setting {setting!r} in config.json; it has: '
      f'{", ".join(sorted(run.settings))}.'
    )
  value = DERIVED[setting](run.shown) if setting in DERIVED else run.settings[setting]
  if isinstance(value, list):
    value = ', '.join(map(str, value))
  text = 'none' if value is None else str(value)
  return run.renamed.get(text, text)


def _size(run: run_lib.Run) -> tuple[int | None, int | None]:
  """Training clients and their examples."""
  data = run.config.get('data', {})
  return data.get('clients'), data.get('examples')


def _composition(run: run_lib.Run) -> str:
  text = names.composition(run.shown)
  return run.renamed.get(text, text)


def _task(run: run_lib.Run) -> tuple[str, str]:
  if 'task' not in run.settings or 'algorithm' not in run.settings:
    raise ValueError(f'{run.folder} names no task and algorithm in config.json.')
  return str(run.settings['task']), ', '.join(run.settings.get('task_option') or [])


def _ordered(runs: Sequence[run_lib.Run], first: Sequence[str]) -> list[str]:
  """The optimizers of the runs, those of the paper in its order, then the others."""
  found = dict.fromkeys(map(_composition, runs))
  return sorted(found, key=[*first, *found].index)


def _with_diverged(score: scores.Score, column: str) -> str:
  """'50.00 (1 of 3 diverged)', where some did at some time; 'diverged (1 of 3)' of such a cell."""
  cell = scores.text(score, column)
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
