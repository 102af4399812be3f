"""Scores runs by their means over the last rounds, and chooses the best."""

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tff_adaptive._utils import streams, suggestions
from tff_adaptive.reports import report
from tff_adaptive.runs import groups as groups_lib, names, run as run_lib, summary as summary_lib

TEST = 'test_accuracy'  # Read from summary.json; not a column of metrics.csv.
K = TypeVar('K')
_FAR = 100  # A loss of more than this many times its first value has diverged.
_MOST_NAMED = 3  # A note names at most this many runs.
_SHARES = ('accuracy', 'recall', 'precision')
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
    with np.errstate(all='ignore'):
      return float(np.mean(self.values)) if len(self.values) else math.nan

  @property
  def std(self) -> float:
    """The sample standard deviation over the runs; 0 for one run."""
    with np.errstate(all='ignore'):
      return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

  @property
  def is_finite(self) -> bool:
    """Whether none of the runs diverged."""
    return math.isfinite(self.mean)


def sign(column: str) -> int:
  """Returns -1 if the column's name is that of a loss or an error, else 1."""
  return -1 if names.is_error(column) else 1


def unit(column: str) -> tuple[float, str]:
  """Returns a column's factor and unit: (100, '%') for shares such as accuracy, else (1, '')."""
  is_share = sign(column) > 0 and any(word in column.lower() for word in _SHARES)
  return (100.0, '%') if is_share else (1.0, '')


def window(run: run_lib.Run) -> int:
  """Returns how many last rounds a score averages: `run.window`, else 10 % but at most 100."""
  rounds = int(run.rows[-1]['round'])
  return min(rounds, run.window or min(summary_lib.WINDOW, -(-rounds // 10)))


def last_values(run: run_lib.Run, column: str) -> list[float]:
  """Returns a column's values in the last `window` rounds; if none, the last after round 0."""
  curve = {t: value for t, value in run.curve(column).items() if t > 0}
  first = min(run.rows[-1]['round'] - window(run), max(curve, default=1) - 1)
  return [value for t, value in curve.items() if t > first]


def mean_of_last(run: run_lib.Run, column: str) -> float | None:
  """Returns the mean of `last_values`, or None if there are none."""
  values = last_values(run, column)
  with np.errstate(all='ignore'):
    return float(np.mean(values)) if values else None


def evaluated(members: Sequence[run_lib.Run], column: str | None = None) -> list[run_lib.Run]:
  """Returns the runs that were evaluated after round 0, and names the other runs on stderr.

  An evaluation is a value of `column` or, if it is None, of a validation column. Trained runs with
  no value at all are kept, so that a later error names the column. Raises ValueError if all runs
  are left out.
  """
  found = []
  for run in members:
    rounds = [
      row['round']
      for row in run.rows
      if any(c == column if column else c.startswith('validation_') for c in row)
    ]
    if not (max(rounds) if rounds else run.rows[-1]['round']):
      streams.write(
        sys.stderr, f'Left out: {run.folder} has not been evaluated after round 0 yet.\n'
      )
    else:
      found.append(run)
  if not found:
    raise ValueError('none of the runs has been evaluated after round 0 yet.')
  return found


def last_rounds(members: Iterable[run_lib.Run]) -> str:
  """Returns a text that names the rounds which `mean_of_last` averages: 'last 100 rounds'."""
  counts = set(map(window, members))
  return f'last {span(counts)} round{"" if counts == {1} else "s"}'


def span(numbers: Iterable[int]) -> str:
  """Formats the range of some numbers, such as '3 to 5', or one number if all are equal."""
  ordered = sorted(numbers)
  return ' to '.join(map(str, dict.fromkeys((ordered[0], ordered[-1]))))


def value_on_test(run: run_lib.Run) -> float:
  """Returns the final test accuracy, of theta-bar if that was evaluated, else of the global model.

  Raises:
    ValueError: If the run is not complete, or its task has no test data.
  """
  done, wanted = int(run.rows[-1]['round']), run.settings['rounds']
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
  last = run.rows[-1]
  return bool(0 < last.get('non_finite_clients', 0) >= last.get('clients', 1))


def without_diverged(
  label: str, members: Sequence[run_lib.Run], column: str
) -> tuple[str, Sequence[run_lib.Run]]:
  """Returns the label of a mean curve, 'FedAvg (n = 2, 1 diverged)', and the runs in it.

  These are the runs that did not diverge, or all runs if all diverged.
  """
  healthy = [run for run in members if not has_diverged(run, column)]
  if not healthy:
    every = f'all {len(members)} ' if len(members) > 1 else ''
    return f'{label} ({every}diverged)', members
  if len(healthy) < len(members):
    return f'{label} (n = {len(healthy)}, {len(members) - len(healthy)} diverged)', healthy
  return (label if len(members) == 1 else f'{label} (n = {len(members)})'), healthy


def no_values(run: run_lib.Run, column: str) -> ValueError:
  """Returns an error for a column without values after round 0, which suggests other columns."""
  there = dict.fromkeys(c for row in run.rows if row['round'] > 0 for c in row if c != 'round')
  close = suggestions.nearest(column, there)
  hint = f'did you mean {" or ".join(close)}?' if close else f'it has: {", ".join(there)}.'
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
  found = []
  is_defined = True
  for run in members:
    value: float | None = math.nan  # A run may diverge before the column has a value.
    if not has_diverged(run, column):
      value = value_on_test(run) if column == TEST else mean_of_last(run, column)
      is_defined &= value is None or not math.isnan(value)
    if value is None:
      raise no_values(run, column)
    found.append(value)
  return Score(found, label, is_defined)


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
  found = score(members, column)
  value = sign(column) * found.mean if found.is_finite else -math.inf
  return found.is_finite, all(run.is_complete for run in members), value


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
  groups = groups_lib.group(runs)
  label = max(groups, key=lambda label: rank(groups[label], column))
  return (label if len(groups) > 1 else ''), groups[label]


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
  margin = within / factor if symbol else abs(top) * within / 100
  return {name for name, mean in means.items() if mean >= top - margin * (1 - 1e-9)}


def text(found: Score | None, column: str, digits: int = 2, factor: float | None = None) -> str:
  """Formats a score as a cell: 'mean ± deviation' in the column's unit, or 'diverged (1 of 3)'.

  `factor` replaces that of `unit`. With it, and in percent, values have `digits` decimals, else 4.
  """
  if found is None:
    return ''
  if not found.is_finite:
    lost, number = sum(not math.isfinite(v) for v in found.values), len(found.values)
    what = 'diverged' if found.is_defined else 'not defined'
    return what if number == 1 else f'{what} ({lost} of {number})'
  if factor is None:
    factor, symbol = unit(column)
    digits = digits if symbol else 4
  return report.spread([factor * value for value in found.values], digits)


def heading(column: str, members: Sequence[run_lib.Run]) -> str:
  """Formats a column's heading: 'validation accuracy, %, mean of the last 100 rounds'."""
  when = 'after the last round' if column == TEST else f'mean of the {last_rounds(members)}'
  return ', '.join(filter(None, (names.metric(column), unit(column)[1], when)))


def note(chosen: Mapping[str, str], members: Sequence[run_lib.Run], column: str = '') -> str:
  """Formats the note below a table.

  Args:
    chosen: For cells with several settings, the best settings by validation, by name of the cell.
    members: The runs of the table. The note has their setting `client_weighting`, which may differ
      by algorithm, and names the runs that diverged or are not complete.
    column: The column that the table shows. For `TEST` the note adds that settings were chosen by
      the global model, theta, while test accuracy is of theta-bar where there is one.
  """
  cells: dict[str, list[str]] = {}
  for cell, label in chosen.items():
    cells.setdefault(label, []).append(cell)
  parts = [label if len(cells) == 1 else f'{label} ({"; ".join(c)})' for label, c in cells.items()]
  best_of = f'Best of several settings by validation: {". ".join(parts)}.' if parts else ''
  of_models = _MODELS if chosen and column == TEST else ''
  begun = [
    f'{run.folder} ({run.rows[-1]["round"]:.0f} of {run.settings["rounds"]} rounds)'
    for run in members
    if not run.is_complete
  ]
  lost = [run.folder for run in members if has_diverged(run, column)]
  of_runs = (_named('Diverged', lost, len(members)), _named('Not complete', begun, len(members)))
  return ' '.join(filter(None, (best_of, of_models, weighting(members), *of_runs)))


def weighting(members: Sequence[run_lib.Run]) -> str:
  """Formats the runs' setting `client_weighting`, by algorithm if it varies; '' if not recorded."""
  found: dict[str, list[str]] = {}
  for run in members:
    weighting, algorithm = (run.settings.get(n) for n in ('client_weighting', 'algorithm'))
    if weighting is not None:
      found.setdefault(weighting, []).append(names.algorithm(algorithm))
  parts = [f'{w} ({", ".join(dict.fromkeys(of))})' for w, of in found.items()]
  return f'client_weighting: {", ".join(parts if len(parts) > 1 else found)}.' if parts else ''


def _named(what: str, runs: Sequence[str], number: int) -> str:
  if not runs:
    return ''
  more = ' and others' if len(runs) > _MOST_NAMED else ''
  return f'{what}: {len(runs)} of {number} runs: {", ".join(runs[:_MOST_NAMED])}{more}.'
