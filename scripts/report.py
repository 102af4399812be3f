"""Makes tables and a figure from the folders of runs.

usage: python scripts/report.py [--flag=value ...] FOLDER [FOLDER ...]

A folder is a run's, or one that holds runs' folders. Runs that differ in their seed only are
repetitions: tables and figures give their mean and standard deviation.

  python scripts/report.py runs --output=results/digits --target=0.95
      prints the table and writes it to results/digits.md, the figure to results/digits.png and the
      curves' means and standard deviations to results/digits.csv.
  python scripts/report.py runs --form=rates --output=results/rates --formats=md,png,pdf,html
      maps by client and server rate, one for each optimizer, and the best server rate by client
      rate, as in "Adaptive Federated Optimization".
  python scripts/report.py runs --form=sensitivity --parameter=tau --output=results/tau
      a line for each optimizer by tau; so for beta, mu or any number of the settings.
  python scripts/report.py runs --form=tasks --output=results/table --formats=md,tex
      tasks by optimizers, the best bold, the paper's figures beside on the benchmark's data.
  python scripts/report.py runs --form=participation
      AdaBest's table: participation and heterogeneity by algorithm, on the test data.
  python scripts/report.py runs --form=crossed --rows=client_schedule --columns=algorithm
      any setting by any other; correction and server_optimizer too, as papers call them.
  python scripts/report.py runs --form=clients --clients=unseen --metric=accuracy
      the distribution of a metric over clients by algorithm, from the last evaluation of each
      client by itself; also inference_accuracy and personalized_accuracy.

Where runs of a cell differ in other settings, sensitivity, tasks, participation and crossed take
the best by validation and say which.
"""

import functools
import sys
from collections.abc import Sequence

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

from tff_adaptive.reports import (
  client_distribution,
  comparison,
  cross_tables,
  rates,
  report,
  scores,
  sensitivity,
  style,
  tables,
)
from tff_adaptive.runs import groups as groups_lib, run as run_lib

from .cli import command

_FORMS = ('comparison', 'rates', 'sensitivity', 'tasks', 'participation', 'crossed', 'clients')
# Their cells are chosen by the metric on the validation data, and they have no figure.
_BY_VALIDATION = ('tasks', 'participation', 'crossed')
# What a form makes use of besides --where, --title, --output and --formats.
_USED = {
  'comparison': ('metric', 'label_by', 'target', 'level', 'log_scale', 'x'),
  'rates': ('metric', 'label_by'),
  'sensitivity': ('metric', 'label_by', 'parameter'),
  'tasks': (),
  'participation': (),
  'crossed': ('metric', 'rows', 'columns'),
  'clients': ('metric', 'label_by', 'clients'),
}
_FLAGS = absl_flags.FlagValues()
_text, _list, _several, _number = (
  functools.partial(define, flag_values=_FLAGS)
  for define in (
    absl_flags.DEFINE_string,
    absl_flags.DEFINE_list,
    absl_flags.DEFINE_multi_string,
    absl_flags.DEFINE_float,
  )
)
_text('form', 'comparison', f'One of {", ".join(_FORMS)}.')
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
_text('x', 'round', f'What curves run along: {", ".join(run_lib.AXES)}.')
_text('parameter', None, 'The setting of --form=sensitivity, such as tau, beta or mu.')
_text(
  'rows', None, 'The setting of each row of --form=crossed, such as client_schedule or correction.'
)
_text('columns', None, 'That of its columns, such as algorithm or server_optimizer.')
_text(
  'clients',
  'heldout',
  'The clients of --form=clients: those that train, on what they train on (train) or on what is'
  ' held out of it (heldout), or those that never train (unseen).',
)
_number('target', None, 'Report the rounds needed to reach this value of the metric.')
_several('level', [], 'A horizontal line in the figure, NAME=VALUE; may be repeated.')
_list('log_scale', [], 'Those of the metrics whose axis is logarithmic.')
_text('title', '', 'Title of the figure.')
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
  levels = _levels()
  conditions = _pairs('where', 'task=digits')
  found = run_lib.find_runs(folders)
  if conditions:
    found = groups_lib.where(found, conditions)
  made = _build(found, levels)
  if _FLAGS.output is not None:
    command.check_output('output', _FLAGS.output)
    made.write(_FLAGS.output, _FLAGS.formats)
  command.show(made.markdown())
  return command.DONE


def _build(found: Sequence[run_lib.Run], levels: dict[str, float]) -> report.Report:
  title = _FLAGS.title
  if _FLAGS.form in _BY_VALIDATION:
    found = scores.evaluated(found)
  if _FLAGS.form == 'tasks':
    return cross_tables.tasks(found, title=title)
  if _FLAGS.form == 'crossed':
    metric = _FLAGS.metric[0] if _FLAGS.metric else None
    return cross_tables.build(found, _FLAGS.rows, _FLAGS.columns, metric, title)
  if _FLAGS.form == 'participation':
    return cross_tables.participation(found, title=title)
  metrics, label_by = _FLAGS.metric or [tables.default_metric(found)], _FLAGS.label_by
  if _FLAGS.form == 'clients':
    metric = metrics[0].removeprefix('validation_')
    groups = groups_lib.group(found, label_by)
    return client_distribution.build(groups, metric, _FLAGS.clients, title=title)
  if _FLAGS.form in ('rates', 'sensitivity'):
    found = scores.evaluated(found, metrics[0])
  if _FLAGS.form == 'rates':
    return rates.build(found, metrics[0], label_by=label_by, title=title)
  if _FLAGS.form == 'sensitivity':
    return sensitivity.build(found, metrics[0], _FLAGS.parameter, label_by=label_by, title=title)
  return comparison.build(
    groups_lib.group(found, label_by),
    metrics,
    axis=_FLAGS.x,
    target=_FLAGS.target,
    title=title,
    levels=levels,
    log_scale=_FLAGS.log_scale,
  )


def _check_flags() -> None:
  """ValueError if a flag is bad, or has no effect on the form."""
  form = _FLAGS.form
  for flag, value, allowed in (
    ('form', form, _FORMS),
    ('x', _FLAGS.x, tuple(run_lib.AXES)),
    ('clients', _FLAGS.clients, ('train', 'heldout', 'unseen')),
    *(('formats', name, tuple(report.FORMATS)) for name in _FLAGS.formats),
  ):
    if value not in allowed:
      raise ValueError(f'--{flag}={value}: give one of {", ".join(allowed)}.')
  if not _FLAGS.formats:
    raise ValueError(f'--formats=: give one or more of {", ".join(report.FORMATS)}.')
  if _FLAGS['formats'].present and _FLAGS.output is None:
    raise ValueError(
      '--formats says what --output writes: give --output=PATH too, or leave --formats out.'
    )
  if form in _BY_VALIDATION and set(_FLAGS.formats) <= set(style.FORMATS):
    raise ValueError(
      f'--formats={",".join(_FLAGS.formats)}: --form={form} has tables only: give one of'
      f' {", ".join(name for name in report.FORMATS if name not in style.FORMATS)}.'
    )
  for flag in {name for names in _USED.values() for name in names} - set(_USED[form]):
    if _FLAGS[flag].present:
      raise ValueError(f'--{flag} has no effect on --form={form}: leave it out.')
  if form == 'sensitivity' and not _FLAGS.parameter:
    raise ValueError('--form=sensitivity needs --parameter, such as --parameter=tau.')
  if form == 'crossed' and not (_FLAGS.rows and _FLAGS.columns):
    raise ValueError(
      '--form=crossed needs --rows and --columns, such as --rows=correction'
      ' --columns=server_optimizer.'
    )
  if form != 'comparison' and len(_FLAGS.metric or []) > 1:
    raise ValueError(f'--form={form} takes one --metric.')


def _pairs(flag: str, example: str, is_last: bool = False) -> list[tuple[str, str]]:
  """The names and values of a flag, divided at the first or the last '='."""
  found = []
  for pair in _FLAGS[flag].value:
    name, is_pair, value = pair.rpartition('=') if is_last else pair.partition('=')
    if not is_pair or not name:
      raise ValueError(f'--{flag}={pair}: write it as NAME=VALUE, such as {example}.')
    found.append((name, value))
  return found


def _levels() -> dict[str, float]:
  try:
    return {name: float(v) for name, v in _pairs('level', 'paper=0.85', is_last=True)}
  except ValueError as error:
    raise ValueError(f'--level: write it as NAME=NUMBER, such as paper=0.85 ({error}).') from None


if __name__ == '__main__':
  sys.exit(main())
