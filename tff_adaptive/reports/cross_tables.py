"""Builds tables of settings by another setting, and of tasks by optimizers as in papers."""

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tff_adaptive.reports import figures, report, scores, tables
from tff_adaptive.runs import names, run as run_lib

# Names for rows and columns that are settings in words, or follow from several settings.
DERIVED: Mapping[str, Callable[[run_lib.Run], str]] = {
  'algorithm': lambda run: names.composition(run.shown),
  'correction': lambda run: names.correction(run.shown),
  'server_optimizer': lambda run: names.server_optimizer(run.shown),
  'participation': lambda run: f'{100 * _participation(run):g} %',
  'task': lambda run: os.path.basename(str(run.settings['task'])),  # For a user's file too.
}
# "Adaptive Federated Optimization" (Reddi et al., 2021), Table 1: means over the last 100 rounds.
# "Performance within 0.5 % of the best result for each task is shown in bold".
OPTIMIZERS = ('FedAdagrad', 'FedAdam', 'FedYogi', 'FedAvgM', 'FedAvg')
_WITHIN = 0.5
_DIGITS: dict[float, int] = {100: 1, 1: 4}  # Factor -> decimals; 2 for other factors.
K = TypeVar('K')


class _Published(NamedTuple):
  title: str
  # The numbers of training clients and examples in the benchmark, by which it is recognised.
  data: tuple[int, int]
  figures: tuple[float, ...]  # For each of OPTIMIZERS.
  metric: str = 'accuracy'
  factor: float = 100  # The paper shows the metric times this number.


_CIFAR = (500, 50_000)
_EMNIST = (3400, 671_585)
_STACK_OVERFLOW = (342_477, 135_818_730)
TASKS = {
  'cifar10': _Published('CIFAR-10', _CIFAR, (72.1, 77.4, 78.0, 77.4, 72.8)),
  'cifar100': _Published('CIFAR-100', _CIFAR, (47.9, 52.5, 52.4, 52.4, 44.7)),
  'emnist_cr': _Published('EMNIST CR', _EMNIST, (85.1, 85.6, 85.5, 85.2, 84.9)),
  'shakespeare': _Published('Shakespeare', (715, 37_784), (57.5, 57.0, 57.2, 57.3, 56.9)),
  'stackoverflow_nwp': _Published(
    'SO NWP',
    _STACK_OVERFLOW,
    (23.8, 25.2, 25.2, 23.8, 19.5),
    'accuracy_without_out_of_vocab_or_end_of_sentence',
  ),
  'stackoverflow_lr': _Published(
    'SO LR', _STACK_OVERFLOW, (67.1, 65.8, 65.9, 36.9, 30.0), 'recall_at_5'
  ),
  'emnist_ae': _Published('EMNIST AE', _EMNIST, (4.20, 1.01, 0.98, 1.65, 6.47), 'mse', 1000),
}


class _Row(NamedTuple):
  place: Sequence[str]  # The cells in the first columns, which name the row.
  by_column: Mapping[str, scores.Score]
  texts: Mapping[str, str]  # Column -> cell.
  bold: Collection[str] = ()  # The columns with bold cells.


def build(
  runs: Sequence[run_lib.Run],
  rows: Sequence[str],
  columns: str,
  metric: str | None = None,
  title: str = '',
) -> report.Report:
  """Builds a table of scores, with settings as rows and another setting as columns.

  A score is the mean over the last rounds of a column of metrics.csv, or the accuracy on the test
  data after the last round. A cell has the scores' mean and sample standard deviation over the
  seeds, or says how many runs diverged. The best cell of a row is bold. If the columns are numbers,
  the figure has a line for each row.

  Args:
    runs: The runs. If runs of a cell differ in more than the seed, the cell shows those of the
      settings with the best validation metric.
    rows: Names of settings. 'algorithm', 'correction' and 'server_optimizer' give the names in
      papers, and 'participation' the share of the clients in a round.
    columns: The name of a setting, as in `rows`. Each of its values has a column.
    metric: A column of metrics.csv, or 'test_accuracy'. Default: the task's metric in validation.
    title: The title of the table.

  Raises:
    ValueError: If a run lacks a setting or values of the metric, or `columns` is also in `rows`.
  """
  if columns in rows:
    raise ValueError(f'rows and columns are both {columns}: give other settings.')
  # Settings are never chosen by test data.
  by_validation = tables.default_metric(runs)
  column = metric or by_validation
  # First by the rows, then each row by the columns: every run is in one cell.
  places = split(runs, lambda run: tuple(_value(run, name) for name in rows))
  names_of_columns = report.in_order(_different(_value(run, columns) for run in runs))
  table_rows = []
  for place in report.in_order([*places], ' '.join):
    cells = split(places[place], lambda run: _value(run, columns))
    best = {name: scores.best(cell, by_validation, column) for name, cell in cells.items()}
    table_rows.append(_row(place, best, column))
  heading = [name.replace('_', ' ') for name in rows]
  caption = scores.heading(column, runs)
  if title:
    caption = f'{title}: {caption}'
  caption = caption[:1].upper() + caption[1:]
  table = _table(heading, names_of_columns, table_rows, runs, caption, column)
  numbers = [text for text in names_of_columns if text != 'none']
  # A line over names would suggest an order.
  figure = None
  if len(numbers) > 1 and all(report.number_key(text)[0] == '#' for text in numbers):
    figure = _figure(table_rows, numbers, columns, column, title)
  return report.Report([table], table.csv(), figure, title)


def _figure(
  rows: Sequence[_Row], numbers: Sequence[str], setting: str, column: str, title: str
) -> Any:
  """Draws a line for each row over the values of the setting of the columns."""
  curves = [_line(', '.join(row.place), numbers, row.by_column) for row in rows]
  drawn = [curve for curve in curves if len(curve.x)]
  figure = figures.comparison({column: drawn}, axis=setting.replace('_', ' '), title=title)
  values = [float(text) for text in numbers]
  # Values of a search usually are powers of ten.
  if min(values) > 0 and max(values) / min(values) >= 10:
    figure.axes[0].set_xscale('log')
  return figure


def _different(values: Iterable[K]) -> list[K]:
  """Returns the different values in the order of their first occurrence."""
  return list(dict.fromkeys(values))


def tasks(runs: Sequence[run_lib.Run], *, title: str = '') -> report.Report:
  """Builds a table of tasks by optimizers, as Table 1 of "Adaptive Federated Optimization".

  A cell has the task's metric on the validation data, averaged over the last rounds. Shares are
  given in percent, and the MSE of `emnist_ae` times 1000. Bold cells are less than 0.5 percentage
  points below the best or, for metrics that are no shares, 0.5 % of it. If the data have as many
  clients and examples as the benchmark, the next row has the paper's values.

  Args:
    runs: Runs of any tasks and algorithms. Runs that differ only in their seed are averaged. If
      runs of a cell differ in other settings, the cell shows the settings with the best metric.
    title: The title of the table.

  Raises:
    ValueError: If a run has no task and algorithm, or runs of a task share no validation metric.
  """
  rows = []
  order = [runs[0].renamed.get(name, name) for name in OPTIMIZERS]
  algorithm = functools.partial(_value, setting='algorithm')
  for (task, options), of_task in split(runs, _task).items():
    column = tables.default_metric(of_task)
    published = _published(task, column)
    factor, _ = scores.unit(column)
    if published:
      factor = published.factor
    digits = _DIGITS.get(factor, 2)
    best = {name: scores.best(cell, column) for name, cell in split(of_task, algorithm).items()}
    show = functools.partial(scores.text, digits=digits, factor=factor)
    rows.append(_row([_label(task, options, column, factor)], best, column, show, _WITHIN))
    if published and _sizes(of_task) == {published.data}:
      texts = {name: f'{n:.{digits}f}' for name, n in zip(order, published.figures)}
      rows.append(_Row(['published'], {}, texts))
  algorithms = _different(map(algorithm, runs))
  first = [*order, *algorithms]  # First those of the paper.
  columns = sorted(algorithms, key=first.index)
  caption = title or f'Validation, mean over the {scores.last_rounds(runs)}'
  table = _table([''], columns, rows, runs, caption)
  return report.Report([table], table.csv(), title=title)


def _published(task: str, column: str) -> _Published | None:
  """Returns what the paper published of a task, if it is in the column's metric."""
  entry = TASKS.get(task)
  # A run may judge a task by another metric than the paper.
  if entry is None or column != f'validation_{entry.metric}':
    return None
  return entry


def _sizes(runs: Iterable[run_lib.Run]) -> set[tuple[Any, Any]]:
  """Returns the numbers of clients and examples of the runs' data."""
  return {(run.config['data'].get('clients'), run.config['data'].get('examples')) for run in runs}


def _label(task: str, options: str, column: str, factor: float) -> str:
  """Returns the name of a task's row, with its metric unless that is accuracy, and its options."""
  label = os.path.basename(task)
  if task in TASKS:
    label = TASKS[task].title
  if column != 'validation_accuracy':
    metric = column.removeprefix('validation_').replace('_', ' ')
    if factor not in (1, 100):
      metric += f' x {factor:g}'
    label += f' ({metric})'
  if options:
    label += f' ({options})'
  return label


def split(
  runs: Iterable[run_lib.Run], key: Callable[[run_lib.Run], K]
) -> dict[K, list[run_lib.Run]]:
  """Groups runs by the value that `key` returns for each. Values and runs keep their order."""
  groups: dict[K, list[run_lib.Run]] = {}
  for run in runs:
    groups.setdefault(key(run), []).append(run)
  return groups


def _row(
  place: Sequence[str],
  by_column: Mapping[str, scores.Score],
  column: str,
  show: Callable[[scores.Score, str], str] = scores.text,
  within: float = 0.0,
) -> _Row:
  """Formats a row of scores. Of metrics those that `scores.is_best` returns are bold."""
  texts = {name: show(score, column) for name, score in by_column.items()}
  bold: Collection[str] = ()
  if scores.is_ordered(column):  # A large norm is not better than a small one.
    bold = scores.is_best(by_column, column, within)
  return _Row(place, by_column, texts, bold)


def _table(
  heading: Sequence[str],
  columns: Sequence[str],
  rows: Sequence[_Row],
  runs: Sequence[run_lib.Run],
  title: str,
  column: str = '',
) -> report.Table:
  """Builds a table of rows of scores, with a note on settings that were chosen as the best."""
  choices = {}  # Cell -> the settings that were chosen for it.
  cells = []
  bold = set()
  for i, row in enumerate(rows):
    for name, score in row.by_column.items():
      if score.label:
        place = ' '.join(filter(None, row.place))
        choices[f'{place}, {name}'] = score.label
    cells.append([*row.place, *(row.texts.get(name, '') for name in columns)])
    for name in row.bold:
      bold.add((i, len(heading) + columns.index(name)))
  note = scores.note(choices, runs, column=column)
  return report.Table([*heading, *columns], cells, frozenset(bold), title, note)


def _value(run: run_lib.Run, setting: str) -> str:
  """Returns a run's value of a setting as the table shows it."""
  derive = DERIVED.get(setting, lambda run: run.settings[setting])
  try:
    value = derive(run)
  except (LookupError, TypeError):
    raise ValueError(
      f'{run.folder} has no setting {setting!r} in config.json; it has: '
      f'{", ".join(sorted(run.settings))}.'
    ) from None
  text = str(value)
  if value is None:
    text = 'none'
  elif isinstance(value, list):
    text = ', '.join(map(str, value))
  return run.renamed.get(text, text)


def _participation(run: run_lib.Run) -> float:
  """Returns the share of the training clients that take part in a round."""
  share = run.settings.get('participation')
  if share:
    return float(share)
  # Asynchronous training has no cohort; a step uses the clients of a buffer.
  cohort = run.settings.get('buffer_size') or run.settings['clients_per_round']
  return float(cohort / run.config['data']['clients'])


def _task(run: run_lib.Run) -> tuple[str, str]:
  if 'task' not in run.settings or 'algorithm' not in run.settings:
    raise ValueError(f'{run.folder} names no task and algorithm in config.json.')
  return str(run.settings['task']), ', '.join(run.settings.get('task_option') or [])


def _line(
  label: str, columns: Sequence[str], by_column: Mapping[str, scores.Score]
) -> figures.Curve:
  """Returns the curve of a row over the columns, which are numbers, without diverged cells."""
  points = []
  for column in columns:
    score = by_column.get(column)
    if score is not None and score.is_finite:
      points.append((float(column), score.mean, score.std))
  x, mean, std = np.reshape(sorted(points), (-1, 3)).T
  return figures.Curve(label, label, x, x, mean, std)
