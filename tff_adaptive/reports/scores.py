"""Scores runs by their means over the last rounds, and chooses the best."""

import dataclasses
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tff_adaptive._utils import streams, suggestions
from tff_adaptive.reports import report
from tff_adaptive.runs import groups as groups_lib, names, run as run_lib, summary as summary_lib

TEST = 'test_accuracy'  # Read from summary.json; not a column of metrics.csv.
K = TypeVar('K')
_FAR = 100  # A loss of more than this many times its first value has diverged.
_MOST_NAMED = 3  # A note names at most this many runs.
_SHARES = ('accuracy', 'recall', 'precision')
_OF_METRICS = ('train_', 'validation_', 'inference_', 'test_', 'clients_')  # Columns begin so.
_MODELS = (
  'Validation is of theta, the global model; test accuracy is of theta-bar where there is one: the'
  ' mean of the client models, or of the last two global models for FedExP.'
)


@dataclasses.dataclass(frozen=True)
class Score:
  """The score of runs that differ only in their seed.

  Attributes:
    values: Each run's mean over its last rounds, or test accuracy; not finite if the run diverged.
    label: The settings of the runs, if these were chosen as the best of several; else ''.
    is_defined: Whether the metric is defined for all runs that did not diverge. Else it is NaN.
  """

  values: Sequence[float]
  label: str = ''
  is_defined: bool = True

  @property
  def mean(self) -> float:
    """The mean over the runs; not finite if a run diverged."""
    if not len(self.values):
      return math.nan
    with np.errstate(all='ignore'):  # A run that diverged may have infinite values.
      return float(np.mean(self.values))

  @property
  def std(self) -> float:
    """The sample standard deviation over the runs; 0 for one run."""
    if len(self.values) < 2:
      return 0.0
    with np.errstate(all='ignore'):
      return float(np.std(self.values, ddof=1))

  @property
  def is_finite(self) -> bool:
    """Whether none of the runs diverged."""
    return math.isfinite(self.mean)


def sign(column: str) -> int:
  """Returns -1 if the column's name is that of a loss or an error, else 1."""
  return -1 if names.is_error(column) else 1


def is_ordered(column: str) -> bool:
  """Returns whether large or small values of a column are good, as those of metrics are.

  Norms, cosines and counts have no good end, nor has the deviation over clients.
  """
  return column.startswith(_OF_METRICS) and not column.endswith('_std')


def unit(column: str) -> tuple[float, str]:
  """Returns a column's factor and unit: (100, '%') for shares such as accuracy, else (1, '')."""
  is_share = sign(column) > 0 and any(word in column.lower() for word in _SHARES)
  if is_share:
    return 100.0, '%'
  return 1.0, ''


def window(run: run_lib.Run) -> int:
  """Returns how many last rounds a score averages: `run.window`, else 10 % but at most 100."""
  rounds = int(run.rows[-1]['round'])
  return min(rounds, run.window or min(summary_lib.WINDOW, -(-rounds // 10)))


def last_values(run: run_lib.Run, column: str) -> list[float]:
  """Returns a column's values in the last `window` rounds; if none, the last after round 0."""
  # Round 0 is the untrained model. A run that was last evaluated before the window has one value.
  curve = {t: value for t, value in run.curve(column).items() if t > 0}
  first = min(run.rows[-1]['round'] - window(run), max(curve, default=1) - 1)
  return [value for t, value in curve.items() if t > first]


def mean_of_last(run: run_lib.Run, column: str) -> float | None:
  """Returns the mean of `last_values`, or None if there are none."""
  values = last_values(run, column)
  if not values:
    return None
  with np.errstate(all='ignore'):
    return float(np.mean(values))


def evaluated(members: Sequence[run_lib.Run], column: str | None = None) -> list[run_lib.Run]:
  """Returns the runs that were evaluated after round 0, and names the other runs on stderr.

  An evaluation is a value of `column` or, if it is None, of a validation column. Trained runs with
  no value at all are kept, so that a later error names the column. Raises ValueError if all runs
  are left out.
  """
  ready = []
  for run in members:
    rounds = [row['round'] for row in run.rows if _has_evaluation(row, column)]
    last = max(rounds, default=run.rows[-1]['round'])
    if last == 0:
      streams.write(
        sys.stderr, f'Left out: {run.folder} has not been evaluated after round 0 yet.\n'
      )
    else:
      ready.append(run)
  if not ready:
    raise ValueError('none of the runs has been evaluated after round 0 yet.')
  return ready


def _has_evaluation(row: Mapping[str, float], column: str | None) -> bool:
  if column is not None:
    return column in row
  return any(name.startswith('validation_') for name in row)


def last_rounds(members: Iterable[run_lib.Run]) -> str:
  """Returns a text that names the rounds which `mean_of_last` averages: 'last 100 rounds'."""
  return f'last {counted(map(window, members), "round")}'


def counted(numbers: Iterable[int], what: str) -> str:
  """Formats a range of numbers of things: '1 round', '3 to 5 rounds'."""
  counts = set(numbers)
  if counts != {1}:
    what += 's'
  return f'{span(counts)} {what}'


def span(numbers: Iterable[int]) -> str:
  """Formats the range of some numbers, such as '3 to 5', or one number if all are equal."""
  ordered = sorted(numbers)
  return ' to '.join(map(str, dict.fromkeys((ordered[0], ordered[-1]))))


def value_on_test(run: run_lib.Run) -> float:
  """Returns the final test accuracy, of theta-bar if that was evaluated, else of the global model.

  Raises:
    ValueError: If the run is not complete, or its task has no test data.
  """
  done = int(run.rows[-1]['round'])
  wanted = run.settings['rounds']
  try:
    summary = summary_lib.read(run.folder)
    # While a run that was complete goes on to more rounds, its old summary is still there.
    if summary['is_complete'] and summary['rounds'] == done and run.is_complete:
      # Without theta-bar: theta's, which is the same with SGD of rate 1 on the server.
      test = summary['test']
      return float(test.get('test_inference_accuracy', test[TEST]))
  except (OSError, ValueError, LookupError, TypeError):
    pass
  raise ValueError(
    f'{run.folder} has no accuracy on test data in summary.json after {done} of {wanted} rounds:'
    ' the run is not complete, or its task has no test data.'
  )


def has_diverged(run: run_lib.Run, column: str) -> bool:
  """Returns whether a run has diverged, by a column, its validation loss or its clients' updates.

  A run has diverged if the last value of the column or validation loss is not finite or, for losses
  and errors, is above 100 times the first one, or if no update of the last round was finite.
  """
  for name in (column, 'validation_loss'):
    values = list(run.curve(name).values()) or [0.0]
    is_worse = sign(name) < 0 and values[-1] > _FAR * values[0] > 0
    # A precision or AUC that is NaN beside a finite loss is not defined on the data.
    losses = list(run.curve('validation_loss').values()) or [math.nan]
    is_undefined = math.isnan(values[-1]) and sign(name) > 0 and math.isfinite(losses[-1])
    if is_worse or not (math.isfinite(values[-1]) or is_undefined):
      return True
  # All clients of the last round diverged: theta stays finite then, but does not move any more.
  last = run.rows[-1]
  return bool(0 < last.get('non_finite_clients', 0) >= last.get('clients', 1))


def without_diverged(
  label: str, members: Sequence[run_lib.Run], column: str
) -> tuple[str, Sequence[run_lib.Run]]:
  """Returns the label of a mean curve, 'FedAvg (n = 2, 1 diverged)', and the runs in it.

  These are the runs that did not diverge, or all runs if all diverged.
  """
  healthy = [run for run in members if not has_diverged(run, column)]
  lost = len(members) - len(healthy)
  if len(members) == 1 and not lost:
    return label, members
  if len(members) == 1:
    return f'{label} (diverged)', members
  if not healthy:
    return f'{label} (all {lost} diverged)', members
  if lost:
    return f'{label} (n = {len(healthy)}, {lost} diverged)', healthy
  return f'{label} (n = {len(members)})', healthy


def no_values(run: run_lib.Run, column: str) -> ValueError:
  """Returns an error for a column without values after round 0, which suggests other columns."""
  columns: dict[str, None] = {}  # A set that keeps the order.
  for row in run.rows:
    if row['round'] > 0:
      columns.update(dict.fromkeys(row))
  columns.pop('round', None)
  close = suggestions.nearest(column, columns)
  hint = f'it has: {", ".join(columns)}.'
  if close:
    hint = f'did you mean {" or ".join(close)}?'
  return ValueError(
    f'{run.folder} has no values of {column!r} in metrics.csv after round 0; {hint}'
  )


def score(members: Sequence[run_lib.Run], column: str, label: str = '') -> Score:
  """Returns the `Score` of repetitions. A diverged run counts as NaN even if its column is finite.

  Args:
    members: Runs that differ only in their seed.
    column: A column of metrics.csv, for its mean over the last rounds, or `TEST`.
    label: The `Score`'s label: the runs' settings, for the note below a table.

  Raises:
    ValueError: If a run that did not diverge has no values of the column or, for `TEST`, is not
      complete or its task has no test data.
  """
  values = []
  is_defined = True
  for run in members:
    value = value_of(run, column)
    if math.isnan(value) and not has_diverged(run, column):
      is_defined = False
    values.append(value)
  return Score(values, label, is_defined)


def value_of(run: run_lib.Run, column: str) -> float:
  """Returns a run's value in `score`: NaN if it diverged."""
  if has_diverged(run, column):  # It may have diverged before the column had a value.
    return math.nan
  if column == TEST:
    return value_on_test(run)
  value = mean_of_last(run, column)
  if value is None:  # A table with a gap would hide a misspelt column.
    raise no_values(run, column)
  return value


def rank(members: Sequence[run_lib.Run], column: str) -> tuple[bool, bool, float]:
  """Returns the key by which tables, searches and pruning rank settings; greater is better.

  Settings with a diverged run are worse than all other settings. Settings with an incomplete run
  are worse than complete ones, because their means are over earlier rounds.

  Args:
    members: The runs of the settings, which differ only in their seed.
    column: A column of metrics.csv.

  Returns:
    A tuple: whether no run diverged, whether all runs are complete, and the mean over the runs,
    which is negated for losses and errors. The mean is -inf if a run diverged.

  Raises:
    ValueError: If a run has no values of the column.
  """
  of_all = score(members, column)
  is_complete = all(run.is_complete for run in members)
  # Tuples are compared from the left: no diverged run, then completeness, then the mean.
  if not of_all.is_finite:
    return False, is_complete, -math.inf
  return True, is_complete, sign(column) * of_all.mean


def best_runs(runs: Sequence[run_lib.Run], column: str) -> tuple[str, Sequence[run_lib.Run]]:
  """Chooses the settings that are the best by `rank`.

  Args:
    runs: Runs that may differ in any setting. Runs that differ only in their seed are averaged.
    column: A validation column of metrics.csv that each run has. Test data are not used to choose.

  Returns:
    The label of the best settings ('' if all runs have the same settings), and their runs.
  """
  if any('task' in run.settings for run in runs) and len(groups_lib.partition(runs, ['task'])) > 1:
    raise ValueError(
      'a cell has runs of different tasks or task files: add task to the rows, or select runs'
    )
  groups = groups_lib.group(runs)  # Those of one label are repetitions.
  label = max(groups, key=lambda label: rank(groups[label], column))
  if len(groups) == 1:
    return '', groups[label]
  return label, groups[label]


def best(runs: Sequence[run_lib.Run], by: str, column: str | None = None) -> Score:
  """Returns the score in `column` (default `by`) of the runs that `best_runs` chooses by `by`."""
  label, members = best_runs(runs, by)
  return score(members, column or by, label)


def is_best(scores: Mapping[K, Score], column: str, within: float = 0.0) -> set[K]:
  """Returns the names of the best score and of those that are worse by less than `within`.

  `within` is in the column's unit or, for columns without a unit, in percent of the best.
  """
  means = {name: sign(column) * s.mean for name, s in scores.items() if s.is_finite}
  if not means:
    return set()
  top = max(means.values())
  factor, symbol = unit(column)
  margin = abs(top) * within / 100
  if symbol:
    margin = within / factor
  # Rounding must not put a score on the other side of the margin.
  return {name for name, mean in means.items() if mean >= top - margin * (1 - 1e-9)}


def text(score: Score | None, column: str, digits: int = 2, factor: float | None = None) -> str:
  """Formats a score as a cell: 'mean ± deviation' in the column's unit, or 'diverged (1 of 3)'.

  `factor` replaces that of `unit`. With it, and in percent, values have `digits` decimals, else 4.
  """
  if score is None:
    return ''
  if not score.is_finite:
    number = len(score.values)
    lost = number - int(np.isfinite(score.values).sum())
    what = 'diverged'
    if not score.is_defined:
      what = 'not defined'
    if number == 1:
      return what
    return f'{what} ({lost} of {number})'
  if factor is None:
    factor, symbol = unit(column)
    if not symbol:
      digits = 4
  return report.spread([factor * value for value in score.values], digits)


def heading(column: str, members: Sequence[run_lib.Run]) -> str:
  """Formats a column's heading: 'validation accuracy, %, mean of the last 100 rounds'."""
  when = f'mean of the {last_rounds(members)}'
  if column == TEST:
    when = 'after the last round'
  return ', '.join(filter(None, (names.metric(column), unit(column)[1], when)))


def data_of(settings: Iterable[Mapping[str, Any]]) -> str:
  """Returns the task and its options if all runs have the same ones, else ''."""
  texts = set()
  for of_run in settings:
    parts = [os.path.basename(str(of_run.get('task') or ''))]
    options = of_run.get('task_option')
    if isinstance(options, list):
      parts += map(str, options)
    texts.add(', '.join(parts))
  if len(texts) != 1:  # Of several tasks none is that of the figure.
    return ''
  return texts.pop()


def note(choices: Mapping[str, str], members: Sequence[run_lib.Run], column: str = '') -> str:
  """Formats the note below a table.

  Args:
    choices: For cells with several settings, the best settings by validation, by name of the cell.
    members: The runs of the table. The note has their setting `client_weighting`, which may differ
      by algorithm, and names the runs that diverged, had clients that did, or are not complete.
    column: The column that the table shows. For `TEST` the note adds that settings were chosen by
      the global model, theta, while test accuracy is of theta-bar where there is one.
  """
  cells: dict[str, list[str]] = {}
  for cell, label in choices.items():
    cells.setdefault(label, []).append(cell)
  labels = list(cells)
  if len(cells) > 1:
    labels = [f'{label} ({"; ".join(names)})' for label, names in cells.items()]
  parts = []
  if labels:
    parts.append(f'Best of several settings by validation: {". ".join(labels)}.')
  if choices and column == TEST:
    parts.append(_MODELS)
  parts.append(weighting(members))
  lost = [run.folder for run in members if has_diverged(run, column)]
  parts.append(_named('Diverged', lost, len(members)))
  # Such a run's values are finite and stand in the table, but some clients trained in vain.
  impaired = []
  for run in members:
    updates = int(sum(row.get('non_finite_clients', 0) for row in run.rows))
    if updates and not has_diverged(run, column):
      impaired.append(f'{run.folder} ({updates:,})')
  parts.append(_named('Updates that were not finite were left out', impaired, len(members)))
  begun = [
    f'{run.folder} ({run.rows[-1]["round"]:.0f} of {run.settings["rounds"]} rounds)'
    for run in members
    if not run.is_complete
  ]
  parts.append(_named('Not complete', begun, len(members)))
  return ' '.join(filter(None, parts))


def weighting(members: Sequence[run_lib.Run]) -> str:
  """Formats the runs' setting `client_weighting`, by algorithm if it varies; '' if not recorded."""
  algorithms: dict[str, dict[str, None]] = {}  # Weighting -> names, as a set that keeps the order.
  for run in members:
    value = run.settings.get('client_weighting')
    if value is not None:
      name = names.algorithm(run.settings.get('algorithm'))
      algorithms.setdefault(value, {})[name] = None
  if not algorithms:
    return ''
  parts = list(algorithms)
  if len(algorithms) > 1:
    parts = [f'{value} ({", ".join(of_value)})' for value, of_value in algorithms.items()]
  return f'client_weighting: {", ".join(parts)}.'


def _named(what: str, runs: Sequence[str], number: int) -> str:
  if not runs:
    return ''
  text = f'{what}: {len(runs)} of {number} runs: {", ".join(runs[:_MOST_NAMED])}'
  if len(runs) > _MOST_NAMED:
    text += ' and others'
  return f'{text}.'
