"""The report that compares groups of runs: a table for each metric, and their curves."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from tff_adaptive.reports import baselines, figures, report, scores
from tff_adaptive.runs import names, run as run_lib, summary as summary_lib

# The columns of `comparison_table`; the last two are shown only if they are asked for.
COLUMNS = ('runs', 'rounds', 'mean', 'last', 'reached', 'seconds', 'server_mb', 'client_mb')


def comparison(
  groups: Mapping[str, Sequence[run_lib.Run]],
  metrics: Sequence[str],
  *,
  axis: str = 'round',
  target: float | None = None,
  title: str = '',
  levels: Mapping[str, float] | None = None,
  log_scale: Sequence[str] = (),
  columns: Sequence[str] = (),
) -> report.Report:
  """Returns a report that compares groups of runs.

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    metrics: Columns of metrics.csv. Each has a table, and a panel of the figure.
    axis: The horizontal axis: 'round', 'megabytes', 'seconds' or 'virtual_seconds'.
    target: If given, the rounds that each metric needs to reach this value are reported too.
    title: The title of the figure and, with the metric's name if there are several, of the tables.
    levels: Values of horizontal lines by name, such as published results.
    log_scale: The metrics with a logarithmic vertical axis.
    columns: See `comparison_table`.

  Raises:
    ValueError: If a run lacks a metric or the axis, or `log_scale` or `columns` has unknown names.
  """
  groups = {label: groups[label] for label in report.in_order([*groups])}
  made: list[report.Table] = []
  drawn: dict[str, list[figures.Curve]] = {}
  for metric in metrics:
    table = comparison_table(groups, metric, target=target, columns=columns)
    drawn[metric] = figures.mean_curves(groups, metric, axis)
    of = f': {names.metric(metric)}' if title and len(metrics) > 1 else ''
    made.append(dataclasses.replace(table, title=title + of))
  figure = figures.comparison(drawn, axis=axis, title=title, levels=levels, log_scale=log_scale)
  return report.Report(made, figures.curves_table(drawn, axis), figure, title)


def comparison_table(
  groups: Mapping[str, Sequence[run_lib.Run]],
  column: str,
  *,
  target: float | None = None,
  columns: Sequence[str] = (),
) -> report.Table:
  """Returns a table with a row for each group of runs.

  Args:
    groups: Runs by label, with values after round 0. Those of a label differ only in their seed.
    column: The column of metrics.csv to compare by.
    target: If given, the rounds that each metric needs to reach this value are reported too.
    columns: The names in `COLUMNS` to show, in this order. The default is all but the last two.

  Returns:
    A table with the numbers of runs and rounds, the mean over the evaluations in the last rounds
    (`scores.window`), the last value, and the median seconds per round. Values are mean ± sample
    standard deviation over the seeds, or NaN if a run diverged. The last row is the constant
    prediction of `baselines.of_runs`, if there is one. The note is made by `scores.note`.

  Raises:
    ValueError: If a run lacks the column, or `columns` has other names, or 'reached' and no target.
  """
  for chosen in columns:
    if chosen not in COLUMNS or (chosen == 'reached' and target is None):
      raise ValueError(
        f'{chosen!r:.80} is no column: give some of {", ".join(COLUMNS)}; reached needs a target.'
      )
  summaries = {label: [run.summary() for run in runs] for label, runs in groups.items()}
  all_runs = [run for members in groups.values() for run in members]
  averaged = ''
  if column.startswith(summary_lib.EVALUATED):
    # The heading has their number, which is small in runs that are seldom evaluated.
    counts = {len(scores.last_values(run, column)) for run in all_runs}
    averaged = f' ({scores.span(counts)} evaluation{"" if counts == {1} else "s"})'
  rows = []
  for label, members in groups.items():
    means = scores.score(members, column).values
    lasts = [
      math.nan if scores.has_diverged(run, column) else [*run.curve(column).values()][-1]
      for run in members
    ]
    seconds = [m for s in summaries[label] if (m := s['seconds_per_round_median']) is not None]
    row = {
      'label': label,
      'runs': str(len(members)),
      'rounds': scores.span(s['rounds'] for s in summaries[label]),
      'mean': report.spread(means),
      'last': report.spread(lasts),
      'seconds': report.spread([statistics.fmean(seconds)] if seconds else []),
    }
    if target is not None:
      row['reached'] = _reached(members, column, target)
    for size in {'server_mb', 'client_mb'} & {*columns}:
      row[size] = report.spread([_size(run.folder, size.removesuffix('_mb')) for run in members])
    rows.append(row)
  constant = baselines.of_runs(all_runs, column)
  if constant is not None:
    value = report.spread([constant.value])
    rows.append({'label': constant.label, 'mean': value, 'last': value})
  name = names.metric(column)
  headings = {
    'mean': f'{name}, mean of {scores.last_rounds(all_runs)}{averaged}',
    'last': f'{name}, last',
    'reached': '' if target is None else f'rounds to {target:g}',
    'seconds': 's a round',
    'server_mb': "MB of the server's state",
    'client_mb': "MB of a client's state",
  }
  shown = columns or [c for c in COLUMNS[:-2] if c != 'reached' or target is not None]
  heading = ['', *(headings.get(c, c) for c in shown)]
  cells = [[row.get(c, '') for c in ('label', *shown)] for row in rows]
  return report.Table(heading, cells, note=scores.note({}, all_runs, column))


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


def _reached(members: Sequence[run_lib.Run], column: str, target: float) -> str:
  """Formats the number of rounds to a target, and how many runs reached it unless all did."""
  sign = scores.sign(column)
  good = [[t for t, v in run.curve(column).items() if sign * v >= sign * target] for run in members]
  known = [min(rounds) for rounds in good if rounds]
  if not known:
    return 'not reached'
  by = '' if len(known) == len(good) else f' (reached by {len(known)} of {len(good)} seeds)'
  return report.spread(known, 0) + by
