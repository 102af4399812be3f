"""Makes a table and a figure from the folders of runs.

usage: python scripts/report.py [--flag=value ...] FOLDER [FOLDER ...]

A folder is a run's, or one that holds runs' folders. Runs that differ in their seed only are
repetitions: the table and the figure give their mean and standard deviation.

  python scripts/report.py runs --output=results/digits --target=0.95
      prints the table and writes it to results/digits.md, the figure to results/digits.png and the
      curves' means and standard deviations to results/digits.csv.
"""

import sys
from collections.abc import Sequence

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import figures, runs, tables

from .cli import command

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list(
  'metric',
  None,
  'Columns of metrics.csv: a table and a panel of the figure each. Default: the metric of the'
  " runs' task on the validation data.",
  flag_values=_FLAGS,
)
absl_flags.DEFINE_list(
  'label_by',
  None,
  'Settings that distinguish runs; by default all that differ.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_float(
  'target', None, 'Report the rounds needed to reach this value of the metric.', flag_values=_FLAGS
)
absl_flags.DEFINE_multi_string(
  'level', [], 'A horizontal line in the figure, NAME=VALUE; may be repeated.', flag_values=_FLAGS
)
absl_flags.DEFINE_list(
  'log_scale', [], 'Those of the metrics whose axis is logarithmic.', flag_values=_FLAGS
)
absl_flags.DEFINE_string('title', '', 'Title of the figure.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output',
  None,
  'Where to write: OUTPUT.md, OUTPUT.png and OUTPUT.csv. Default: print.',
  flag_values=_FLAGS,
)


@command.entry('report.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  folders = command.parse(_FLAGS, __doc__, arguments)
  if folders is None:
    return command.DONE
  if not folders:
    raise ValueError("give at least one run's folder.")
  levels = _levels()
  found = runs.find_runs(folders)
  groups = runs.group(found, _FLAGS.label_by)
  metrics = _FLAGS.metric or [tables.default_metric(found)]
  table = '\n'.join(tables.comparison(groups, metric, target=_FLAGS.target) for metric in metrics)
  if _FLAGS.output is not None:
    command.check_output('output', _FLAGS.output)
    figures.draw_comparison(
      f'{_FLAGS.output}.png',
      groups,
      metrics,
      title=_FLAGS.title,
      levels=levels,
      log_scale=_FLAGS.log_scale,
    )
    atomic_files.write_text(f'{_FLAGS.output}.csv', figures.curves_table(groups, metrics))
    atomic_files.write_text(f'{_FLAGS.output}.md', table)
  command.show(table)
  return command.DONE


def _levels() -> dict[str, float]:
  levels = {}
  for pair in _FLAGS.level:
    name, _, value = pair.rpartition('=')
    try:
      levels[name] = float(value)
    except ValueError:
      raise ValueError(f'--level={pair}: write it as NAME=VALUE, such as paper=0.85.') from None
  return levels


if __name__ == '__main__':
  sys.exit(main())
