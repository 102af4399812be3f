"""Makes tables and a figure from the folders of runs.

usage: python scripts/report.py [--flag=value ...] FOLDER [FOLDER ...]

FOLDER is the folder of a run, or holds folders of runs. Runs that differ only in their seed are
repetitions: tables and figures give their mean and standard deviation.

  python scripts/report.py runs --output=results/digits --target=0.95
      prints the table and writes it to results/digits.md, the figure to results/digits.png and the
      curves' means and standard deviations to results/digits.csv.
  python scripts/report.py runs --form=rates --output=results/rates --formats=md,png,pdf,html
      maps by client and server rate, one for each optimizer, as in "Adaptive Federated
      Optimization", and a table of the best server rate by client rate.
  python scripts/report.py runs --form=tasks --output=results/table --formats=md,tex
      tasks by optimizers, the best in bold; with the benchmark's data also the paper's figures.
  python scripts/report.py runs --form=crossed --rows=algorithm --columns=tau --output=results/tau
      any settings by any other, also correction and server_optimizer, by their names in papers. If
      the columns are numbers, the figure has a line for each row.
  python scripts/report.py runs --form=crossed --rows=participation,task,task_option \\
      --columns=algorithm --metric=test_accuracy
      AdaBest's table: participation and heterogeneity by algorithm, on the test data.
  python scripts/report.py runs --form=clients --clients=unseen --metric=accuracy
      the distribution of a metric over clients by algorithm, from the last evaluation by client;
      other metrics are inference_accuracy, personalized_accuracy and own_accuracy.

If the runs of a cell differ in other settings, tasks and crossed take the settings with the best
validation data, and name them.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from tff_adaptive.reports import (
  client_distribution,
  cross_tables,
  report,
  scores,
  style,
  tables,
  tuning,
)
from tff_adaptive.runs import groups as groups_lib, run as run_lib

from .cli import command, fields, flags

_COMPARISON = 'form=comparison'


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Report(fields.Group):
  """The flags of report.py. Commas separate the values of a flag that takes several."""

  TITLE = 'Report'

  form: str = fields.flag(
    'The form of the report: comparison, rates, tasks, crossed or clients.',
    'comparison',
    choices=('comparison', 'rates', 'tasks', 'crossed', 'clients'),
  )
  metric: str | None = fields.flag(
    'Columns of metrics.csv, separated by commas, with a table and a panel each; other forms than'
    " comparison take one. Default: the task's metric on the validation data. Small values are good"
    ' if the name has a word for a loss or an error (docs/guide/reports.md has the list).',
    needs=f'{_COMPARISON} or rates or crossed or clients',
  )
  label_by: str | None = fields.flag(
    'Settings, separated by commas, that distinguish lines or maps. Default: as few as are needed.',
    needs=f'{_COMPARISON} or rates or clients',
  )
  where: tuple[str, ...] = fields.flag(
    'Only runs with this setting, NAME=VALUE. May be repeated; a run must have all settings.', []
  )
  rename: tuple[str, ...] = fields.flag(
    'Replace a label, or a part of one, in tables and legends: OLD=NEW. May be repeated.', []
  )
  x: str = fields.flag(
    f'The horizontal axis of curves: {", ".join(run_lib.AXES)}.',
    'round',
    choices=tuple(run_lib.AXES),
    needs=_COMPARISON,
  )
  rows: str | None = fields.flag(
    'The settings of the rows of --form=crossed, such as client_schedule,correction.',
    needs='form=crossed',
  )
  columns: str | None = fields.flag(
    'The setting of the columns of --form=crossed, such as algorithm, tau or beta. For'
    f' --form=comparison columns of its table, of {",".join(tables.COLUMNS)}; by default all but'
    ' the last two.',
    needs=f'{_COMPARISON} or crossed',
  )
  clients: str = fields.flag(
    'The clients of --form=clients: those that train, on their training examples (train) or on'
    ' their held-out ones (heldout), those that never train (unseen) or have test data (test).',
    'heldout',
    choices=('train', 'heldout', 'unseen', 'test'),
    needs='form=clients',
  )
  target: float | None = fields.flag(
    'Report the rounds needed to reach this value of the metric.', needs=_COMPARISON
  )
  window: int | None = fields.count(
    'Number of last rounds over which means are taken. Default: the last tenth, at most 100.',
    needs=f'{_COMPARISON} or rates or tasks or crossed',
  )
  level: tuple[str, ...] = fields.flag(
    'A horizontal line in the figure, NAME=VALUE; may be repeated.', [], needs=_COMPARISON
  )
  log_scale: str | None = fields.flag('Metrics with a logarithmic axis: M,M.', needs=_COMPARISON)
  title: str = fields.flag(
    'Title of the figure and of the tables, which is their caption in LaTeX.', ''
  )
  output: str | None = fields.flag(
    'Path of the files without extension, as in OUTPUT.md. Default: print only.'
  )
  formats: str = fields.flag(
    'What to write: ' + '; '.join(f'{name}, {text}' for name, text in report.FORMATS.items()) + '.',
    ','.join(report.DEFAULT_FORMATS),
    needs='output',
  )


_FLAGS = flags.define(flags.of_group(_Report))


@command.entry('report.py', prints_result=True)
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  if (folders := command.parse(_FLAGS, __doc__, arguments)) is None:
    return command.DONE
  if not folders:
    raise ValueError("give at least one run's folder.")
  given: _Report = flags.check(_FLAGS, _Report)
  formats, metrics = given.formats.split(','), _listed(given.metric)
  if not {*formats} <= {*report.FORMATS}:
    known = ', '.join(report.FORMATS)
    raise ValueError(f'--formats={given.formats}: give one or more of {known}.')
  if given.form == 'crossed' and not (given.rows and given.columns):
    raise ValueError('--form=crossed needs --rows and --columns, such as algorithm and tau.')
  if given.form != 'comparison' and len(metrics) > 1:
    raise ValueError(f'--form={given.form} takes one --metric.')
  levels = {}
  for name, value in _pairs('level', given.level):
    try:
      levels[name] = float(value)
    except ValueError:
      raise ValueError(f'--level={name}={value}: give a number, such as paper=0.85.') from None
  renamed = dict(_pairs('rename', given.rename))
  found = [
    dataclasses.replace(run, window=given.window, renamed=renamed)
    for run in run_lib.find_runs(folders)
  ]
  if given.where:
    found = groups_lib.where(found, _pairs('where', given.where, str.partition))
  made = _build(given, found, metrics, levels)
  cells = {cell for table in made.tables for row in [table.heading, *table.rows] for cell in row}
  for old, new in renamed.items():
    if not any(new in text for text in (*cells, *(table.title for table in made.tables))):
      raise ValueError(f'--rename={old}={new}: no label has the part {old!r}.')
  if made.figure is None and {*formats} <= {*style.FORMATS}:
    raise ValueError(f'--formats={given.formats}: this report has tables only.')
  if given.output is not None:
    command.check_output('output', given.output)
    made.write(given.output, formats)
  command.show(made.markdown())
  return command.DONE


def _build(
  given: _Report, found: Sequence[run_lib.Run], metrics: Sequence[str], levels: dict[str, float]
) -> report.Report:
  form, title, label_by = given.form, given.title, _listed(given.label_by)
  if form != 'clients':
    found = scores.evaluated(found, metrics[0] if metrics else None)
  if form == 'tasks':
    return cross_tables.tasks(found, title=title)
  metrics = metrics or [tables.default_metric(found)]
  if form == 'crossed':
    return cross_tables.build(found, _listed(given.rows), given.columns or '', metrics[0], title)
  if form == 'clients':
    groups = groups_lib.group(found, label_by or None)
    metric = metrics[0].removeprefix('validation_')
    return client_distribution.build(groups, metric, given.clients, title=title)
  if form == 'rates':
    return tuning.by_rates(found, metrics[0], label_by=label_by or None, title=title)
  return tables.comparison(
    groups_lib.group(found, label_by or None),
    metrics,
    axis=given.x,
    target=given.target,
    title=title,
    levels=levels,
    log_scale=_listed(given.log_scale),
    columns=_listed(given.columns),
  )


def _listed(text: str | None) -> list[str]:
  """Returns the comma-separated values of a flag, or [] if the flag was not given."""
  return text.split(',') if text else []


def _pairs(
  flag: str, texts: Sequence[str], divide: Callable[[str, str], Sequence[str]] = str.rpartition
) -> list[tuple[str, str]]:
  """Splits each NAME=VALUE text of a flag at the last '=', or where `divide` splits it."""
  found = []
  for text in texts:
    name, is_pair, value = divide(text, '=')
    if not (name and is_pair):
      raise ValueError(f'--{flag}={text}: write it as NAME=VALUE.')
    found.append((name, value))
  return found


if __name__ == '__main__':
  sys.exit(main())
