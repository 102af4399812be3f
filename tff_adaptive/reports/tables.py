"""The report that compares groups of runs: a table for each metric, and their curves."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

from tff_adaptive._utils import validation
from tff_adaptive.reports import baselines, differences, figures, report, scores
from tff_adaptive.runs import names, run as run_lib, summary as summary_lib

# The columns of `comparison_table`; the last two are shown only if they are asked for.
COLUMNS = (
  'runs',
  'rounds',
  'mean',
  'last',
  'at_megabytes',
  'reached',
  'spent',
  'seconds',
  'server_mb',
  'client_mb',
)
_ROUNDING = 1e-9  # Relative, of a sum over rounds.


def comparison(
  groups: Mapping[str, Sequence[run_lib.Run]],
  metrics: Sequence[str],
  *,
  axis: str = 'round',
  target: float | None = None,
  at_megabytes: float | None = None,
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
  columns: Sequence[str] = (),
  against: str | None = None,
) -> report.Report:
  """Returns a report that compares groups of runs.

  Of two or more groups there is, for each metric, a second table: the differences from one of them,
  paired by seed, with their confidence intervals (`differences.table`).

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    metrics: Columns of metrics.csv. Each has a table, and a panel of the figure.
    axis: The horizontal axis, a name in `run.AXES`, such as 'round' or 'megabytes'.
    target, at_megabytes: See `comparison_table`.
    title: The title of the figure and, with the metric's name if there are several, of the tables.
    levels: Values of horizontal lines by name, such as published results.
    log_scale: The metrics with a logarithmic vertical axis.
    columns: See `comparison_table`.
    against: The group from which the differences of the others are taken; by default the best.

  Raises:
    ValueError: If a run lacks a metric or the axis, `log_scale` or `columns` has unknown names, or
      there is no group `against`.
  """
  # 'n=2' comes before 'n=10', whatever the order of the folders.
  groups = {label: groups[label] for label in report.in_order([*groups])}
  tables: list[report.Table] = []
  curves: dict[str, list[figures.Curve]] = {}
  for metric in metrics:
    table = comparison_table(
      groups, metric, target=target, columns=columns, axis=axis, at_megabytes=at_megabytes
    )
    curves[metric] = figures.mean_curves(groups, metric, axis)
    table_title = title
    if title and len(metrics) > 1:
      table_title = f'{title}: {names.metric(metric)}'
    tables.append(dataclasses.replace(table, title=table_title))
    of_seeds = differences.table(groups, metric, against)
    if of_seeds is not None:
      tables.append(of_seeds)
  runs = _members(groups)
  figure = figures.comparison(
    curves,
    axis=axis,
    title=title or scores.data_of(run.shown for run in runs),
    levels=levels,
    log_scale=log_scale,
  )
  return report.Report(tables, figures.curves_table(curves, axis), figure, title)


def _members(groups: Mapping[str, Sequence[run_lib.Run]]) -> list[run_lib.Run]:
  """Returns the runs of all groups."""
  return list(itertools.chain.from_iterable(groups.values()))


def comparison_table(
  groups: Mapping[str, Sequence[run_lib.Run]],
  column: str,
  *,
  target: float | None = None,
  columns: Sequence[str] = (),
  axis: str = 'round',
  at_megabytes: float | None = None,
) -> report.Table:
  """Returns a table with a row for each group of runs.

  Args:
    groups: Runs by label, with values after round 0. Those of a label differ only in their seed.
    column: The column of metrics.csv to compare by.
    target: If given, the rounds that the metric needs to reach this value are reported too, and
      what was spent of another axis until then, such as megabytes.
    columns: The names in `COLUMNS` to show, in this order. The default is all but the last two.
    axis: A name in `run.AXES`, for `target` and `at_megabytes`.
    at_megabytes: If given, the metric when so many megabytes had been sent is reported too: those
      by and to clients, or those of an axis of megabytes.

  Returns:
    A table with the numbers of runs and rounds, the mean over the evaluations in the last rounds
    (`scores.window`), the last value, and the median seconds per round. Values are mean ± sample
    standard deviation over the seeds, or NaN if a run diverged. The last row is the constant
    prediction of `baselines.of_runs`, if there is one. The note is made by `scores.note`.

  Raises:
    ValueError: If a run lacks the column or the axis, or `columns` has other names, or one whose
      option is not given.
  """
  if at_megabytes is not None:
    validation.above_zero('at_megabytes', at_megabytes, 'give megabytes, such as 100')
  if column == scores.TEST:
    raise ValueError(
      f"{column} is measured once, after the last round, and has no curve: take the form 'crossed',"
      ' or a column of metrics.csv, such as validation_accuracy.'
    )
  default_columns = _default_columns(target, axis, at_megabytes)
  _check_columns(columns, default_columns)
  all_runs = _members(groups)
  rows = []
  for label, members in groups.items():
    row = _row(label, members, column, columns)
    if target is not None:
      row.update(_until(members, column, target, axis))
    if at_megabytes is not None:
      values = [_value_at(run, column, _megabytes_of(axis), at_megabytes) for run in members]
      row['at_megabytes'] = _of_those_that_did([v for v in values if v is not None], len(members))
    rows.append(row)
  constant = baselines.of_runs(all_runs, column)
  if constant is not None:
    value = report.spread([constant.value])
    rows.append({'label': constant.label, 'mean': value, 'last': value})
  names_of_columns = columns or default_columns
  headings = _headings(all_runs, column)
  if target is not None:
    headings['reached'] = f'rounds to {target:g}'
    headings['spent'] = f'{axis.replace("_", " ")} to {target:g}'
  if at_megabytes is not None:
    unit = _megabytes_of(axis).replace('megabytes', 'MB').replace('_', ' ')
    headings['at_megabytes'] = f'{names.metric(column)} at {at_megabytes:g} {unit}'
  heading = ['', *(headings.get(name, name) for name in names_of_columns)]
  cells = []
  for row in rows:
    cells.append([row['label'], *(row.get(name, '') for name in names_of_columns)])
  return report.Table(heading, cells, note=scores.note({}, all_runs, column))


def _check_columns(columns: Sequence[str], default_columns: Sequence[str]) -> None:
  for name in columns:
    if name not in (*default_columns, *COLUMNS[-2:]):
      raise ValueError(
        f'{name!r:.80} is no column: give some of {", ".join(COLUMNS)}; reached needs a target,'
        ' spent a target and an axis x, and at_megabytes an at_megabytes.'
      )


def _default_columns(target: float | None, axis: str, at_megabytes: float | None) -> list[str]:
  columns = list(COLUMNS[:-2])
  if target is None:
    columns.remove('reached')
  if target is None or axis == 'round':
    columns.remove('spent')
  if at_megabytes is None:
    columns.remove('at_megabytes')
  return columns


def _megabytes_of(axis: str) -> str:
  """Returns the axis of the megabytes of `at_megabytes`."""
  if axis.startswith('megabytes'):
    return axis
  return 'megabytes'


def _value_at(run: run_lib.Run, column: str, axis: str, most: float) -> float | None:
  """Returns a run's value at its last evaluation with at most so much of an axis.

  It is NaN if the run had diverged then, and None if the run, to its end, has spent less: what it
  would have reached is not known.
  """
  positions = run.progress(axis)
  # Sums of floats: a budget that a round uses up must not be missed by their rounding.
  most = most * (1 + _ROUNDING)
  # The run has ended below the budget.
  if max(positions.values()) < most * (1 - 2 * _ROUNDING):
    return None
  values = [value for t, value in run.curve(column).items() if positions[t] <= most]
  if not values:
    return math.nan
  return values[-1]


def _headings(runs: Sequence[run_lib.Run], column: str) -> dict[str, str]:
  """Returns the headings of the columns of `comparison_table` that differ from their names."""
  averaged = ''
  if column.startswith(summary_lib.EVALUATED):
    # The heading has their number, which is small in runs that are seldom evaluated.
    counts = [len(scores.last_values(run, column)) for run in runs]
    averaged = f' ({scores.counted(counts, "evaluation")})'
  name = names.metric(column)
  return {
    'mean': f'{name}, mean of {scores.last_rounds(runs)}{averaged}',
    'last': f'{name}, last',
    'seconds': 's a round',
    'server_mb': "MB of the server's state",
    'client_mb': "MB of a client's state",
  }


def _row(
  label: str,
  members: Sequence[run_lib.Run],
  column: str,
  columns: Sequence[str],
) -> dict[str, str]:
  """Returns the cells of a group of runs by column, and its label."""
  summaries = [run.summary() for run in members]
  medians = [summary['seconds_per_round_median'] for summary in summaries]
  # A run of round 0 alone has none.
  seconds = [median for median in medians if median is not None]
  seconds_text = ''
  if seconds:
    seconds_text = report.spread([statistics.fmean(seconds)])
  row = {
    'label': label,
    'runs': str(len(members)),
    'rounds': scores.span(summary['rounds'] for summary in summaries),
    'mean': report.spread(scores.score(members, column).values),
    'last': report.spread([_last(run, column) for run in members]),
    'seconds': seconds_text,
  }
  for name in ('server_mb', 'client_mb'):
    if name in columns:  # Only then, because runs of programs may have no sizes.
      part = name.removesuffix('_mb')
      row[name] = report.spread([_size(run.folder, part) for run in members])
  return row


def _last(run: run_lib.Run, column: str) -> float:
  """Returns the last value of a column, or NaN if the run diverged."""
  if scores.has_diverged(run, column):
    return math.nan
  return list(run.curve(column).values())[-1]


def _size(folder: str, part: str) -> float:
  try:
    return float(summary_lib.read(folder)['state_megabytes'][part])
  except (FileNotFoundError, KeyError, TypeError):
    raise ValueError(f'{folder} has no sizes of its states: leave *_mb out of columns.') from None


def default_metric(runs: Sequence[run_lib.Run]) -> str:
  """Returns the column by which to compare runs if none is given.

  It is the metric of the runs' task on the validation data. If the runs have no metric or different
  ones, it is a validation column that all runs have: accuracy, else another metric, else the loss.

  Args:
    runs: At least one run.

  Raises:
    ValueError: If the runs have no validation column in common.
  """
  common = _validation_columns(runs[0])
  for run in runs[1:]:
    columns = _validation_columns(run)
    common = [name for name in common if name in columns]
  if not common:
    raise ValueError('the runs have no validation metric in common: name a column.')
  # Runs of programs may record no metric.
  judged = {f'validation_{run.metric}' for run in runs if run.metric is not None}
  if len(judged) == 1 and judged <= set(common):
    return judged.pop()
  if 'validation_accuracy' in common:
    return 'validation_accuracy'
  others = [name for name in common if name != 'validation_loss']
  if not others:
    return common[0]
  return others[0]


def _validation_columns(run: run_lib.Run) -> list[str]:
  """Returns the validation columns of a run in their order."""
  columns: dict[str, None] = {}
  for row in run.rows:
    columns.update(dict.fromkeys(row))
  return [name for name in columns if name.startswith('validation_')]


def _until(members: Sequence[run_lib.Run], column: str, target: float, axis: str) -> dict[str, str]:
  """Formats the number of rounds to a target, and what was spent of an axis until then."""
  sign = scores.sign(column)
  first_rounds = []
  spent = []
  for run in members:
    # The sign turns losses around: then larger is better for all metrics.
    rounds = [t for t, value in run.curve(column).items() if sign * value >= sign * target]
    if rounds:
      first_rounds.append(min(rounds))
      spent.append(run.progress(axis)[min(rounds)])
  return {
    'reached': _of_those_that_did(first_rounds, len(members), 0),
    'spent': _of_those_that_did(spent, len(members), 1),
  }


def _of_those_that_did(values: Sequence[float], number: int, digits: int = 4) -> str:
  """Formats values of the runs that came so far, and how many did unless all did."""
  if not values:
    return 'not reached'
  text = report.spread(values, digits)
  if len(values) < number:
    text += f' (reached by {len(values)} of {number} seeds)'
  return text
