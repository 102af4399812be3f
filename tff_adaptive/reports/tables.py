"""The table that compares groups of runs."""

import math
import statistics
from collections.abc import Mapping, Sequence

from tff_adaptive.reports import number_texts, scores, table as table_lib
from tff_adaptive.runs import names, run as run_lib, summary as summary_lib


def comparison_table(
  groups: Mapping[str, Sequence[run_lib.Run]], column: str, *, target: float | None = None
) -> table_lib.Table:
  """Returns a table with a row for each group of runs.

  Args:
    groups: Label -> runs that differ in their seed.
    column: The column of metrics.csv to compare by.
    target: If given, the rounds needed to reach this value are reported too.

  Returns:
    Runs and rounds; the mean over the last 100 rounds, or all of shorter runs, or over their
    evaluations, of which the heading gives the numbers, and the last value, each mean +- sample
    standard deviation over the seeds, NaN if one diverged; median seconds a round. The note names
    the runs that diverged, and those that have not done all their rounds.

  Raises:
    ValueError: If a run has no values of the column.
  """
  name = names.metric(column)
  every = {label: [run.summary() for run in members] for label, members in groups.items()}
  averaged = ''
  if column.startswith(summary_lib.EVALUATED):
    # A run that is seldom evaluated has few of them, or one.
    counts = sorted({s['evaluations_averaged'] for summaries in every.values() for s in summaries})
    averaged = f' ({_range(counts)} evaluation{"" if counts == [1] else "s"})'
  all_runs = [run for members in groups.values() for run in members]
  last = scores.last_rounds(all_runs)
  heading = [
    '',
    'runs',
    'rounds',
    f'{name}, mean of {last}{averaged}',
    f'{name}, last',
    's a round',
  ]
  if target is not None:
    heading.insert(5, f'rounds to {target:g}')
  is_evaluated = any(t > 0 for run in all_runs for t in run.curve(column))
  rows = []
  for label, members in groups.items():
    summaries = every[label]
    for run, found in zip(members, summaries):
      if column not in found['last']:
        raise scores.no_values(run, column)
    means = [scores.mean_of_last(run, column) for run in members]
    lasts = [_last(run, column, is_evaluated) for run in members]
    rounds = sorted({s['rounds'] for s in summaries})
    seconds = [m for s in summaries if (m := s['seconds_per_round_median']) is not None]
    unfinished = '' if all(s['is_complete'] for s in summaries) else ' (not complete)'
    cells = [
      label,
      str(len(members)),
      _range(rounds) + unfinished,
      _over_runs(members, column, means),
      _over_runs(members, column, lasts),
      number_texts.spread([statistics.fmean(seconds)] if seconds else []),
    ]
    if target is not None:
      cells.insert(5, reached([rounds_to(run, column, target) for run in members]))
    rows.append(cells)
  note = ' '.join(filter(None, (scores.diverged_note(all_runs, column), scores.note({}, all_runs))))
  return table_lib.Table(heading, rows, note=note)


def _last(run: run_lib.Run, column: str, is_evaluated: bool) -> float | None:
  """A run's last value; that of round 0, the initial model, where no run has a later one."""
  curve = run.curve(column)
  end = max(curve)
  return curve[end] if end > 0 or not is_evaluated else None


def _over_runs(members: Sequence[run_lib.Run], column: str, values: Sequence[float | None]) -> str:
  """The spread of a value of each run, and how many runs have one if not all have."""
  shown = [
    math.nan if v is not None and math.isfinite(v) and scores.is_left_out(run, column) else v
    for run, v in zip(members, values)
  ]
  known = [value for value in shown if value is not None]
  of = f' ({len(known)} of {len(members)} runs)' if 0 < len(known) < len(members) else ''
  return number_texts.spread(known) + of


def default_metric(runs: Sequence[run_lib.Run]) -> str:
  """Returns the column by which to compare runs where none is named.

  The metric by which their task is judged, on the validation data. Where the runs name none, or
  different ones: the first validation column that all runs have, accuracy, else another metric,
  else the loss.

  Args:
    runs: At least one run.

  Raises:
    ValueError: If they have no validation column in common.
  """
  columns = [dict.fromkeys(name for row in run.rows for name in row) for run in runs]
  common = [
    name
    for name in columns[0]
    if name.startswith('validation_') and all(name in others for others in columns)
  ]
  if not common:
    raise ValueError('the runs have no validation metric in common: name a column.')
  judged = {f'validation_{run.metric}' for run in runs if run.metric is not None}
  if len(judged) == 1 and judged <= set(common):
    return judged.pop()
  others = [name for name in common if name != 'validation_loss']
  return 'validation_accuracy' if 'validation_accuracy' in others else (others or common)[0]


def rounds_to(run: run_lib.Run, column: str, target: float) -> int | None:
  """Returns the first evaluated round whose value is as good as the target, or None.

  Good is high, but for the column of a loss or an error: see `runs.metric_names`.
  """
  sign = scores.sign(column)
  return next((r for r, v in run.curve(column).items() if sign * v >= sign * target), None)


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
  """Returns a Markdown table; the first column is text, the others numbers."""
  return table_lib.Table(heading, rows).markdown()


def reached(rounds: Sequence[int | None]) -> str:
  """In how many rounds a target was reached, and by how many of the runs if not by all."""
  known = [number for number in rounds if number is not None]
  if not known:
    return 'not reached'
  by = '' if len(known) == len(rounds) else f' (reached by {len(known)} of {len(rounds)} seeds)'
  return number_texts.spread(known, 0) + by


def _range(numbers: Sequence[int]) -> str:
  """Returns sorted numbers as 'least to greatest', or the one that they are."""
  return ' to '.join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))
