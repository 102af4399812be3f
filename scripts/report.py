"""Makes tables and a figure from the folders of runs.

usage: python scripts/report.py [--flag=value ...] FOLDER [FOLDER ...]

A folder is a run's, or one that holds runs' folders. Runs that differ in their seed only are
repetitions: tables and figures give their mean and standard deviation.

  python scripts/report.py runs --output=results/digits --target=0.95
      prints the table and writes it to results/digits.md, the figure to results/digits.png and the
      curves' means and standard deviations to results/digits.csv.
  python scripts/report.py runs --form=rates --output=results/rates --formats=md,png,pdf,html
      maps by client and server rate, one for each optimizer, as in "Adaptive Federated
      Optimization", and a table of the best server rate by client rate.
  python scripts/report.py runs --form=tasks --output=results/table --formats=md,tex
      tasks by optimizers, the best bold, the paper's figures beside on the benchmark's data.
  python scripts/report.py runs --form=crossed --rows=algorithm --columns=tau --output=results/tau
      any settings by any other; correction and server_optimizer too, as papers call them. Where the
      columns are numbers, the figure has a line for each row.
  python scripts/report.py runs --form=crossed --rows=participation,task,task_option \\
      --columns=algorithm --metric=test_accuracy
      AdaBest's table: participation and heterogeneity by algorithm, on the test data.
  python scripts/report.py runs --form=clients --clients=unseen --metric=accuracy
      the distribution of a metric over clients by algorithm, from the last evaluation of each
      client by itself; also inference_accuracy and personalized_accuracy.

Where runs of a cell differ in other settings, tasks and crossed take the best by validation and say
which.
"""

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

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

from .cli import command

# What a form makes use of besides --where, --title, --output and --formats.
_FORMS = {
  'comparison': ('metric', 'window', 'label_by', 'target', 'level', 'log_scale', 'x', 'columns'),
  'rates': ('metric', 'window', 'label_by'),
  'tasks': ('window',),
  'crossed': ('metric', 'window', 'rows', 'columns'),
  'clients': ('metric', 'label_by', 'clients'),
}
_FLAGS = absl_flags.FlagValues()
V = TypeVar('V')
_text, _list, _several, _one_of = (
  functools.partial(define, flag_values=_FLAGS)
  for define in (
    absl_flags.DEFINE_string,
    absl_flags.DEFINE_list,
    absl_flags.DEFINE_multi_string,
    absl_flags.DEFINE_enum,
  )
)
_one_of('form', 'comparison', [*_FORMS], 'What is reported.')
_list(
  'metric',
  None,
  'Columns of metrics.csv: a table and a panel of the figure each; one for other forms.'
  " Default: the metric of the runs' task on the validation data. Small values are good where a"
  ' word of the name is that of a loss or an error (docs/guide/reports.md has the list).',
)
_list(
  'label_by',
  None,
  'Settings that distinguish lines or maps; by default as many of those that differ as it takes.',
)
_several(
  'where',
  [],
  'Only runs with this setting, NAME=VALUE; may be repeated: runs that have all of them.',
)
_several(
  'rename',
  [],
  'What tables and legends say instead of a label or a part of one, OLD=NEW; may be repeated.',
)
_one_of('x', 'round', [*run_lib.AXES], 'What curves run along.')
_list(
  'rows',
  None,
  'The settings of the rows of --form=crossed, such as client_schedule or correction.',
)
_text(
  'columns',
  None,
  'That of its columns, such as algorithm, tau or beta. Of --form=comparison the columns of'
  f' its table, some of {",".join(tables.COLUMNS)}. Default: all.',
)
_one_of(
  'clients',
  'heldout',
  ['train', 'heldout', 'unseen'],
  'The clients of --form=clients: those that train, on what they train on (train) or on what is'
  ' held out of it (heldout), or those that never train (unseen).',
)
absl_flags.DEFINE_float(
  'target', None, 'Report the rounds needed to reach this value of the metric.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'window',
  None,
  'Means are over so many of the last rounds. Default: the last tenth, and at most 100.',
  1,
  flag_values=_FLAGS,
)
_several('level', [], 'A horizontal line in the figure, NAME=VALUE; may be repeated.')
_list('log_scale', [], 'Those of the metrics whose axis is logarithmic.')
_text('title', '', 'Title of the figure and of the tables: their caption in LaTeX.')
_text('output', None, 'Where to write: OUTPUT.md and so on. Default: print only.')
_list(
  'formats',
  list(report.DEFAULT_FORMATS),
  'What to write: ' + '; '.join(f'{name}, {text}' for name, text in report.FORMATS.items()) + '.',
)


@command.entry('report.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  folders = command.parse(_FLAGS, __doc__, arguments)
  if folders is None:
    return command.DONE
  if not folders:
    raise ValueError("give at least one run's folder.")
  _check_flags()
  levels = dict(_pairs('level', str.rpartition, float, 'NUMBER, such as paper=0.85'))
  conditions = _pairs('where', str.partition, str, 'VALUE, such as task=digits')
  renamed = dict(_pairs('rename', str.rpartition, str, 'OTHER, such as FedYogi=Yogi'))
  found = [
    dataclasses.replace(run, window=_FLAGS.window, renamed=renamed)
    for run in run_lib.find_runs(folders)
  ]
  if conditions:
    found = groups_lib.where(found, conditions)
  made = _build(found, levels)
  cells = {cell for table in made.tables for row in [table.heading, *table.rows] for cell in row}
  for old, new in renamed.items():
    if not any(new in text for text in (*cells, *(table.title for table in made.tables))):
      raise ValueError(f'--rename={old}={new}: no label has the part {old!r}.')
  if made.figure is None and set(_FLAGS.formats) <= set(style.FORMATS):
    raise ValueError(f'--formats={",".join(_FLAGS.formats)}: this report has tables only.')
  if _FLAGS.output is not None:
    command.check_output('output', _FLAGS.output)
    made.write(_FLAGS.output, _FLAGS.formats)
  command.show(made.markdown())
  return command.DONE


def _build(found: Sequence[run_lib.Run], levels: dict[str, float]) -> report.Report:
  form, title, label_by = _FLAGS.form, _FLAGS.title, _FLAGS.label_by
  if form != 'clients':
    found = scores.evaluated(found, _FLAGS.metric and _FLAGS.metric[0])
  if form == 'tasks':
    return cross_tables.tasks(found, title=title)
  metrics = _FLAGS.metric or [tables.default_metric(found)]
  if form == 'crossed':
    return cross_tables.build(found, _FLAGS.rows, _FLAGS.columns, metrics[0], title)
  if form == 'clients':
    groups = groups_lib.group(found, label_by)
    metric = metrics[0].removeprefix('validation_')
    return client_distribution.build(groups, metric, _FLAGS.clients, title=title)
  if form == 'rates':
    return tuning.by_rates(found, metrics[0], label_by=label_by, title=title)
  return tables.comparison(
    groups_lib.group(found, label_by),
    metrics,
    axis=_FLAGS.x,
    target=_FLAGS.target,
    title=title,
    levels=levels,
    log_scale=_FLAGS.log_scale,
    columns=_FLAGS.columns.split(',') if _FLAGS.columns else (),
  )


def _check_flags() -> None:
  """Raises ValueError if a flag is invalid, or has no effect on the form."""
  form = _FLAGS.form
  if not _FLAGS.formats or not {*_FLAGS.formats} <= {*report.FORMATS}:
    given, known = ','.join(_FLAGS.formats), ', '.join(report.FORMATS)
    raise ValueError(f'--formats={given}: give one or more of {known}.')
  if _FLAGS['formats'].present and _FLAGS.output is None:
    raise ValueError('--formats says what --output writes: give --output=PATH too.')
  for flag in {name for names in _FORMS.values() for name in names} - {*_FORMS[form]}:
    if _FLAGS[flag].present:
      raise ValueError(f'--{flag} has no effect on --form={form}: leave it out.')
  for flag in ('rows', 'columns'):
    if form == 'crossed' and not _FLAGS[flag].value:
      raise ValueError(f'--form=crossed needs --{flag}: {_FLAGS[flag].help}')
  if form != 'comparison' and len(_FLAGS.metric or []) > 1:
    raise ValueError(f'--form={form} takes one --metric.')


def _pairs(
  flag: str, divide: Callable[[str, str], Sequence[str]], convert: Callable[[str], V], form: str
) -> list[tuple[str, V]]:
  """Returns the names and values of a flag's NAME=VALUE texts."""
  found = []
  for pair in _FLAGS[flag].value:
    name, is_pair, value = divide(pair, '=')
    try:
      found.append((name, convert(value)))
    except ValueError:
      name = ''
    if not (name and is_pair):
      raise ValueError(f'--{flag}={pair}: write it as NAME={form}.')
  return found


if __name__ == '__main__':
  sys.exit(main())
