"""Tables in the forms of the papers, with what they published beside."""

import math
import os
from collections.abc import Mapping, Sequence

from tff_adaptive.reports import number_texts, published, report, scores, table as table_lib, tables
from tff_adaptive.runs import names, run as run_lib

# "Performance within 0.5 % of the best result for each task is shown in bold", Table 1.
_WITHIN = 0.5
_ADA_BEST_ORDER = ('FedAvg', 'FedDyn', 'SCAFFOLD', 'SCAFFOLD/m', 'AdaBest')

Cells = Mapping[str, Sequence[run_lib.Run]]  # Optimizer -> its runs.


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
  columns = _ordered(runs, published.OPTIMIZERS)
  rows: list[list[str]] = []
  bold: set[tuple[int, int]] = set()
  chosen: dict[str, str] = {}
  for (task, options), cells in _by(runs, _task).items():
    own = [run for members in cells.values() for run in members]
    column = tables.default_metric(own)
    factor = _factor(task, column)
    found = {name: scores.best(members, column) for name, members in cells.items()}
    best = scores.is_best(found, column, within=_WITHIN)
    label = _title(task, column, factor) + (f' ({options})' if options else '')
    bold |= {(len(rows), columns.index(name) + 1) for name in best}
    digits = 1 if factor == 100 else 4 if factor == 1 else 2
    rows.append([label, *(scores.text(found.get(name), factor, digits) for name in columns)])
    chosen |= {f'{label}, {name}': s.label for name, s in found.items() if s.label}
    row = _published_row(task, column, own, columns)
    if row is not None:
      rows.append(row)
  heading = ['', *columns]
  note = scores.note(chosen, runs)
  caption = title or f'Validation, mean over the {scores.last_rounds(runs)}'
  table = table_lib.Table(heading, rows, frozenset(bold), caption, note)
  return report.Report([table], table.csv(), title=title)


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
  columns = _ordered(runs, _ADA_BEST_ORDER)
  rows: list[list[str]] = []
  bold: set[tuple[int, int]] = set()
  chosen: dict[str, str] = {}
  for (rate, task, setting), cells in sorted(_by(runs, _setting).items(), key=_order):
    found, texts = {}, {}
    for name, members in cells.items():
      label, best_runs = scores.best_runs(members, tables.default_metric(members))
      found[name] = scores.score_on_test(best_runs, label)
      texts[name] = _with_diverged(scores.text(found[name], 100.0, 2), best_runs)
    best = scores.is_best(found, 'test_accuracy')
    bold |= {(len(rows), columns.index(name) + 3) for name in best}
    cells_ = [texts.get(name, '') for name in columns]
    rows.append([f'{100 * rate:g} %', task, _heterogeneity(setting), *cells_])
    place = ' '.join(filter(None, rows[-1][:3]))
    chosen |= {f'{place}, {name}': s.label for name, s in found.items() if s.label}
  note = scores.note(chosen, runs, on_test=True)
  caption = title or 'Test accuracy after the last round, %'
  heading = ['participation', 'task', 'setting', *columns]
  table = table_lib.Table(heading, rows, frozenset(bold), caption, note)
  return report.Report([table], table.csv(), title=title)


def _with_diverged(cell: str, runs: Sequence[run_lib.Run]) -> str:
  """'50.00 (1 of 3 diverged)', where some did at some time; 'diverged (1 of 3)' of such a cell."""
  count = sum(map(scores.is_diverged, runs))
  if not count:
    return cell
  word = '' if cell == 'diverged' else ' diverged'
  return f'{cell} ({count} of {len(runs)}{word})'


def _by(runs: Sequence[run_lib.Run], key: object) -> dict:
  """Row -> optimizer -> runs, in the order in which they come."""
  found: dict = {}
  for run in runs:
    if 'task' not in run.settings or 'algorithm' not in run.settings:
      raise ValueError(f'{run.folder} names no task and algorithm in config.json.')
    cells = found.setdefault(key(run), {})  # type: ignore[operator]
    cells.setdefault(names.composition(run.settings), []).append(run)
  return found


def _task(run: run_lib.Run) -> tuple[str, str]:
  options = run.settings.get('task_option') or []
  return str(run.settings['task']), ', '.join(options)


def _setting(run: run_lib.Run) -> tuple[float, str, str]:
  """What distinguishes rows: the share of clients in a round, the task, its options."""
  task, options = _task(run)
  clients = run.config.get('data', {}).get('clients')
  if not clients:
    raise ValueError(f'{run.folder} has no number of clients in config.json.')
  return run.settings['clients_per_round'] / clients, os.path.basename(task), options


def _order(row: tuple[tuple[float, str, str], object]) -> tuple:
  """Sorts rows, the numbers in their options as numbers."""
  (rate, task, options), _ = row
  return rate, task, number_texts.key(options)


def _heterogeneity(options: str) -> str:
  """'alpha=0.03' -> 'alpha = 0.03'; alpha=inf is IID, as the paper has it."""
  shown: list[str] = []
  for pair in filter(None, options.split(', ')):
    name, _, value = pair.partition('=')
    if name == 'alpha':
      shown.insert(0, 'IID' if _is_infinite(value) else f'alpha = {value}')
    elif name not in ('validation', 'num_clients'):
      shown.append(pair)
  return ', '.join(shown)


def _is_infinite(text: str) -> bool:
  try:
    return math.isinf(float(text))
  except ValueError:  # A task of one's own may have alpha=auto.
    return False


def _ordered(runs: Sequence[run_lib.Run], first: Sequence[str]) -> list[str]:
  """The optimizers of the runs, those of the paper in its order, then the others."""
  found = list(
    dict.fromkeys(names.composition(r.settings) for r in runs if 'algorithm' in r.settings)
  )
  return [n for n in first if n in found] + [n for n in found if n not in first]


def _factor(task: str, column: str) -> float:
  entry = published.TASKS.get(task)
  if entry is not None and column == f'validation_{entry.metric}':
    return entry.factor
  return scores.unit(column)[0]


def _title(task: str, column: str, factor: float) -> str:
  """The task as the paper calls it; the metric too where it is no accuracy."""
  entry = published.TASKS.get(task)
  title = os.path.basename(task) if entry is None else entry.title
  if column == 'validation_accuracy':
    return title
  metric = column.removeprefix('validation_').replace('_', ' ')
  return f'{title} ({metric}{f" x {factor:g}" if factor not in (1, 100) else ""})'


def _published_row(
  task: str, column: str, runs: Sequence[run_lib.Run], columns: Sequence[str]
) -> list[str] | None:
  """The paper's row, if the runs' data have as many clients as the benchmark."""
  entry = published.TASKS.get(task)
  if entry is None or column != f'validation_{entry.metric}':
    return None
  if any(run.config.get('data', {}).get('clients') != entry.clients for run in runs):
    return None
  figures = dict(zip(published.OPTIMIZERS, entry.figures))
  cells = [
    f'{figures[name]:.{2 if entry.factor == 1000 else 1}f}' if name in figures else ''
    for name in columns
  ]
  return ['published', *cells]
