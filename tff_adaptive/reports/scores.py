"""What a run is judged by: the mean over its last rounds."""

import dataclasses
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from tff_adaptive._utils import suggestions
from tff_adaptive.reports import report
from tff_adaptive.runs import (
  groups as groups_lib,
  names,
  run as run_lib,
  summary as summary_lib,
)

TEST = 'test_accuracy'  # Not a column of metrics.csv, but in summary.json.
K = TypeVar('K')
_FAR = 100  # A loss so many times its first has diverged.
_MOST_NAMED = 3  # Runs that a note names.
_SHARES = ('accuracy', 'recall', 'precision')
_MODELS = (
  'Validation is of theta, the global model; test accuracy of theta-bar, the mean of the client'
  ' models, where there is one.'
)


@dataclasses.dataclass(frozen=True)
class Score:
  """The score of the repetitions of a run.

  Attributes:
    values: Of each run the mean of a column over its last rounds; not finite if it diverged.
    label: The settings that it was the best of, if any.
    runs: The runs.
  """

  values: Sequence[float]
  label: str = ''
  runs: Sequence[run_lib.Run] = ()

  @property
  def mean(self) -> float:
    """The mean over the runs; not finite if one diverged."""
    with np.errstate(all='ignore'):
      return float(np.mean(self.values)) if len(self.values) else math.nan

  @property
  def std(self) -> float:
    """The sample standard deviation over the runs; 0 for one."""
    with np.errstate(all='ignore'):
      return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

  @property
  def is_finite(self) -> bool:
    """Whether none of the runs diverged."""
    return math.isfinite(self.mean)


def sign(column: str) -> int:
  """1 if high values of a column are good, -1 of a loss or an error, going by its name."""
  return -1 if names.is_error(column) else 1


def has_direction(column: str) -> bool:
  """Whether it is known what is good in a column: of a loss or an accuracy, not of a norm."""
  return names.is_error(column) or unit(column)[1] == '%'


def unit(column: str) -> tuple[float, str]:
  """The factor by which papers show a column, and its sign: shares in percent."""
  is_share = sign(column) > 0 and any(word in column.lower() for word in _SHARES)
  return (100.0, '%') if is_share else (1.0, '')


def window(run: run_lib.Run) -> int:
  """Over how many of its last rounds a run is judged: `Run.window`, or a tenth, at most 100."""
  rounds = int(run.rows[-1]['round'])
  return min(rounds, run.window or min(summary_lib.WINDOW, -(-rounds // 10)))


def last_values(run: run_lib.Run, column: str) -> list[float]:
  """What the `window` has in a column, round 0 left out; the last value of one that has nothing."""
  curve = {t: value for t, value in run.curve(column).items() if t > 0}
  first = min(run.rows[-1]['round'] - window(run), max(curve, default=1) - 1)
  return [value for t, value in curve.items() if t > first]


def mean_of_last(run: run_lib.Run, column: str) -> float | None:
  """Returns the mean of `last_values`, if there are any."""
  values = last_values(run, column)
  with np.errstate(all='ignore'):
    return float(np.mean(values)) if values else None


def evaluated(members: Sequence[run_lib.Run], column: str | None = None) -> list[run_lib.Run]:
  """The runs without those that have only the initial model's values yet, which are reported.

  Values of a column count, or any on validation data. ValueError if no run is left.
  """
  found = []
  for run in members:
    rounds = [
      row['round']
      for row in run.rows
      if any(c == column if column else c.startswith('validation_') for c in row)
    ]
    # Without any value the column is another's, unless training has not begun.
    if not (max(rounds) if rounds else run.rows[-1]['round']):
      sys.stderr.write(f'Left out: {run.folder} has not been evaluated after round 0 yet.\n')
    else:
      found.append(run)
  if not found:
    raise ValueError('none of the runs has been evaluated after round 0 yet.')
  return found


def last_rounds(members: Iterable[run_lib.Run]) -> str:
  """'last 100 rounds', fewer of shorter runs: over how many rounds `mean_of_last` is."""
  counts = set(map(window, members))
  return f'last {span(counts)} round{"" if counts == {1} else "s"}'


def span(numbers: Iterable[int]) -> str:
  """Numbers as 'least to greatest', or the one that they are."""
  ordered = sorted(numbers)
  return ' to '.join(map(str, dict.fromkeys((ordered[0], ordered[-1]))))


def value_on_test(run: run_lib.Run) -> float:
  """Accuracy on the test data after the last round, of theta-bar where there is one.

  Raises:
    ValueError: If the run is not complete, or its task has no test data.
  """
  done, wanted = int(run.rows[-1]['round']), run.settings['rounds']
  try:
    summary = summary_lib.read(run.folder)
    # One of fewer rounds is there while a run that was complete goes on to more.
    if summary['is_complete'] and summary['rounds'] == done and run.is_complete:
      # Without states there is theta only: theta-bar with SGD of rate 1 on the server.
      test = summary['test']
      return float(test.get('test_inference_accuracy', test[TEST]))
  except (OSError, ValueError, LookupError, TypeError):
    pass
  raise ValueError(
    f'{run.folder} has no accuracy on test data in summary.json after {done} of {wanted} rounds:'
    ' the run is not complete, or its task has no test data.'
  )


def has_diverged(run: run_lib.Run, column: str) -> bool:
  """Whether a column of a run ends with what is not finite, or as a loss far above its first."""
  values = list(run.curve(column).values())
  if not values:
    return False
  is_worse = sign(column) < 0 and values[-1] > _FAR * values[0] > 0
  return not math.isfinite(values[-1]) or is_worse


def is_diverged(run: run_lib.Run) -> bool:
  """Whether its validation loss diverged, or updates of its clients were not finite some time."""
  return has_diverged(run, 'validation_loss') or any(
    row.get('non_finite_clients') for row in run.rows
  )


def ends_diverged(run: run_lib.Run) -> bool:
  """Whether its validation loss diverged, or the updates of all clients of its last round."""
  last = run.rows[-1]
  lost = last.get('non_finite_clients') or 0
  return has_diverged(run, 'validation_loss') or 0 < lost >= last.get('clients', 1)


def without_diverged(
  label: str, members: Sequence[run_lib.Run], column: str
) -> tuple[str, Sequence[run_lib.Run]]:
  """The name of the mean curve of repetitions, 'FedAvg (n = 2, 1 diverged)', and whose it is.

  These are the runs that did not diverge, see `is_left_out`, or all where all did.
  """
  healthy = [run for run in members if not is_left_out(run, column)]
  if not healthy:
    every = f'all {len(members)} ' if len(members) > 1 else ''
    return f'{label} ({every}diverged)', members
  if len(healthy) < len(members):
    return f'{label} (n = {len(healthy)}, {len(members) - len(healthy)} diverged)', healthy
  return (label if len(members) == 1 else f'{label} (n = {len(members)})'), healthy


def is_left_out(run: run_lib.Run, column: str) -> bool:
  """Whether mean curves of a column omit a run: it diverged there, or as in `ends_diverged`."""
  return has_diverged(run, column) or ends_diverged(run)


def no_values(run: run_lib.Run, column: str) -> ValueError:
  """The error for a column without a value after round 0: names the nearest, or all others."""
  there = dict.fromkeys(c for row in run.rows if row['round'] > 0 for c in row if c != 'round')
  close = suggestions.nearest(column, there)
  hint = f'did you mean {" or ".join(close)}?' if close else f'it has: {", ".join(there)}.'
  return ValueError(
    f'{run.folder} has no values of {column!r} in metrics.csv after round 0; {hint}'
  )


def score(members: Sequence[run_lib.Run], column: str, label: str = '') -> Score:
  """Returns what repetitions came to: NaN of a run that diverged, also where its column is finite.

  Args:
    members: Runs that differ in their seed.
    column: A column of metrics.csv, or `TEST`.
    label: What the settings of the runs are, for notes.

  Raises:
    ValueError: If a run has no values of the column, or one that did not diverge none on test data.
  """
  found = []
  for run in members:
    value = math.nan if column == TEST else mean_of_last(run, column)
    if value is None:
      raise no_values(run, column)
    if column == TEST and not ends_diverged(run):
      value = value_on_test(run)
    found.append(math.nan if ends_diverged(run) else value)
  return Score(found, label, members)


def rank(members: Sequence[run_lib.Run], column: str) -> tuple[bool, bool, float]:
  """How good settings are, what is better the greater: in tables, in searches and for pruning.

  Diverged runs are worse than all others. Settings with a run that is not complete are worse than
  all whose runs are: the last rounds of one that stopped early are not those of the others.

  Args:
    members: Their runs, which differ in their seed.
    column: A column of metrics.csv.

  Returns:
    Whether no run diverged; whether all are complete; the mean, negated of a loss or an error.

  Raises:
    ValueError: If a run has no values of the column.
  """
  found = score(members, column)
  value = sign(column) * found.mean if found.is_finite else -math.inf
  return found.is_finite, all(run.is_complete for run in members), value


def best_runs(runs: Sequence[run_lib.Run], column: str) -> tuple[str, Sequence[run_lib.Run]]:
  """Returns the settings that are the best by `rank`, and their runs.

  Args:
    runs: Runs that may differ in any setting; those that differ in their seed only are averaged.
    column: A column of metrics.csv, of validation: test data choose nothing.

  Returns:
    The label of the settings, '' if there are no others, and the runs with these.
  """
  groups = groups_lib.group(runs)
  label = max(groups, key=lambda label: rank(groups[label], column))
  return (label if len(groups) > 1 else ''), groups[label]


def best(runs: Sequence[run_lib.Run], by: str, column: str | None = None) -> Score:
  """Returns the score of `best_runs`, of the column that chose or of another one."""
  label, members = best_runs(runs, by)
  return score(members, column or by, label)


def is_best(scores: Mapping[K, Score], column: str, within: float = 0.0) -> set[K]:
  """The names of the best scores of a column, and of those `within` so much of the best.

  That is in the column's unit; of columns without a unit, in percent of the best.
  """
  means = {name: sign(column) * s.mean for name, s in scores.items() if s.is_finite}
  if not means:
    return set()
  top = max(means.values())
  factor, symbol = unit(column)
  margin = within / factor if symbol else abs(top) * within / 100
  return {name for name, mean in means.items() if mean >= top - margin * (1 - 1e-9)}


def text(found: Score | None, column: str, digits: int = 2, factor: float | None = None) -> str:
  """A score of a column as the cell of a table: 'mean +- deviation' in its unit, or 'diverged'.

  Percentages have so many decimals, others four; what is shown by a factor has them, too.
  """
  if found is None:
    return ''
  if not found.is_finite:
    return 'diverged'
  if factor is None:
    factor, symbol = unit(column)
    digits = digits if symbol else 4
  return report.spread([factor * value for value in found.values], digits)


def heading(column: str, members: Sequence[run_lib.Run]) -> str:
  """'validation accuracy, %, mean of the last 100 rounds'."""
  parts = names.metric(column), unit(column)[1], f'mean of the {last_rounds(members)}'
  return ', '.join(filter(None, parts))


def note(
  chosen: Mapping[str, str],
  members: Sequence[run_lib.Run],
  column: str = '',
) -> str:
  """The note below a table.

  Args:
    chosen: Cell -> the settings that were the best there by validation, of cells that had several.
    members: The runs of the table: how they weigh clients is said, which may differ by algorithm;
      those are named that have not done all their rounds.
    column: What the table is of: `TEST` is of another model than what chose.
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
  unfinished = _named('Not complete', begun, len(members))
  return ' '.join(filter(None, (best_of, of_models, weighting(members), unfinished)))


def weighting(members: Sequence[run_lib.Run]) -> str:
  """'client_weighting: examples (FedAvg), uniform (AdaBest).'; '' of runs that do not say it."""
  found: dict[str, list[str]] = {}
  for run in members:
    weighting, algorithm = (run.settings.get(n) for n in ('client_weighting', 'algorithm'))
    if weighting is not None:
      found.setdefault(weighting, []).append(names.algorithm(algorithm))
  parts = [f'{w} ({", ".join(dict.fromkeys(of))})' for w, of in found.items()]
  return f'client_weighting: {", ".join(parts if len(parts) > 1 else found)}.' if parts else ''


def diverged_note(members: Sequence[run_lib.Run], column: str) -> str:
  """Names the runs that diverged, in a column or as in `ends_diverged`; '' if none did."""
  found = [run.folder for run in members if is_left_out(run, column)]
  return _named('Diverged', found, len(members))


def _named(what: str, runs: Sequence[str], number: int) -> str:
  if not runs:
    return ''
  more = ' and others' if len(runs) > _MOST_NAMED else ''
  return f'{what}: {len(runs)} of {number} runs: {", ".join(runs[:_MOST_NAMED])}{more}.'
