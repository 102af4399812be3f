"""Shows how a task's clients differ: their sizes and the labels that they hold.

usage: python scripts/partition_report.py --task=TASK [--flag=value ...]

Prints the numbers as a table; with --output, writes it to OUTPUT.md and a picture to OUTPUT.png:
the labels of each client, and the sizes of all clients.

  python scripts/partition_report.py --task=digits --output=results/digits_partition
  python scripts/partition_report.py --task=mnist_skewed --data_dir=DIR --task_option=alpha=0.03

The labels of a task whose targets are no classes (text, tags, images) are not shown.
"""

import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

from tff_adaptive._utils import atomic_files, validation
from tff_adaptive.reports import figures, tables
from tff_adaptive_tasks.data import partition_stats

from .cli import command, fields, options, settings, tensorflow_start
from .cli.groups import output, what

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string('task', 'digits', 'The task.', flag_values=_FLAGS)
absl_flags.DEFINE_multi_string(
  'task_option', [], "A task's own option, NAME=VALUE.", flag_values=_FLAGS
)
absl_flags.DEFINE_integer('seed', 0, 'Seed of the partition.', flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, 'Folder with data files.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('clients', 30, 'Clients shown in the picture.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output', None, 'Where to write: OUTPUT.md and OUTPUT.png. Default: print.', flag_values=_FLAGS
)


@command.entry('partition_report.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  what.check_task(_FLAGS.task)
  validation.whole_number('--clients', _FLAGS.clients, 1, 'give 1 or more', fields.INT31)
  settings.check('seed', _FLAGS.seed)
  task_options = options.parse('task_option', _FLAGS.task_option)
  output.check_data_dir(_FLAGS.task, _FLAGS.data_dir)
  if _FLAGS.output:
    command.check_output('output', _FLAGS.output)
  tensorflow_start.quietly()
  import tff_adaptive_tasks as tasks  # From here on TensorFlow is imported, which takes seconds.

  task = tasks.load(_FLAGS.task, data_dir=_FLAGS.data_dir, seed=_FLAGS.seed, **task_options)
  text, labels = describe(task)
  command.show(text)
  if _FLAGS.output:
    atomic_files.write_text(f'{_FLAGS.output}.md', text)
    sizes = [task.train.num_examples(client) for client in task.train.client_ids]
    figures.draw_partition(f'{_FLAGS.output}.png', sizes, labels[: _FLAGS.clients], task.name)
  return command.DONE


def describe(task: Any) -> tuple[str, Any]:
  """The numbers of a task's clients.

  Args:
    task: A `tasks.Task`.

  Returns:
    Markdown, and the label counts int64 [clients, classes], empty if targets are no classes.
  """
  ids = task.train.client_ids
  first = task.train.load(ids[0])['y']
  rows = [['source', task.source]]
  if first.ndim == 1 and first.dtype.kind in 'iu':
    counts: Any = partition_stats.counts_by_client([task.train.load(client)['y'] for client in ids])
    found = partition_stats.report_of_counts(counts)
  else:
    sizes = [task.train.num_examples(client) for client in ids]
    counts, found = [], partition_stats.report_of_sizes(sizes)
  rows += [
    [name.replace('_', ' '), str(v) if isinstance(v, int) else f'{v:.3g}']
    for name, v in found.items()
  ]
  return f'# Clients of {task.name}\n\n' + tables.markdown(['', ''], rows), counts


if __name__ == '__main__':
  sys.exit(main())
