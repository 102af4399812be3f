"""Shows how a task's clients differ: their sizes and the labels that they hold.

usage: python scripts/partition_report.py --task=TASK [--flag=value ...]

Prints the numbers as a table; with --output, writes it to OUTPUT.md and a picture to OUTPUT.png:
the labels of each client, and the sizes of all clients.

  python scripts/partition_report.py --task=digits --output=results/digits_partition
  python scripts/partition_report.py --task=mnist_skewed --data_dir=DIR --task_option=alpha=0.03

The labels of a task whose targets are no classes (text, tags, images) are not shown.
"""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file: the checkout's packages, not this folder, are importable.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from absl import flags as absl_flags

from scripts import command
from scripts import settings as settings_lib
from tasks import catalog, partition_report
from tff_adaptive import checks, files, names
from tff_adaptive.reports import figures, tables

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


def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  try:
    if not command.read(_FLAGS, __doc__, arguments):
      return 0
    if _FLAGS.task not in catalog.names():
      raise ValueError(f'--task: {names.unknown("task", _FLAGS.task, catalog.names())}')
    checks.whole_number('--clients', _FLAGS.clients, 1, 'give 1 or more')
    checks.whole_number('--seed', _FLAGS.seed, 0, 'give a whole number such as 0')
    if _FLAGS.output:
      command.check_output('output', _FLAGS.output)
    task = _load()
    text, labels = describe(task)
    sys.stdout.write(text)
    if _FLAGS.output:
      files.write_text(f'{_FLAGS.output}.md', text)
      sizes = [task.train.num_examples(client) for client in task.train.client_ids]
      figures.draw_partition(f'{_FLAGS.output}.png', sizes, labels[: _FLAGS.clients], task.name)
  except (ValueError, OSError) as error:  # tasks.DataError is a ValueError.
    sys.stderr.write(f'partition_report.py: {" ".join(str(error).split())}\n')
    return 2
  return 0


def _load() -> Any:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
  import tasks  # From here on TensorFlow is imported, which takes seconds.

  options = settings_lib.options({'task_option': _FLAGS.task_option}, 'task_option')
  return tasks.load(_FLAGS.task, data_dir=_FLAGS.data_dir, seed=_FLAGS.seed, **options)


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
    counts = partition_report.counts_by_client([task.train.load(client)['y'] for client in ids])
    found = partition_report.report_of_counts(counts)
  else:
    sizes = [task.train.num_examples(client) for client in ids]
    counts, found = [], partition_report.report_of_sizes(sizes)
  rows += [
    [name.replace('_', ' '), str(v) if isinstance(v, int) else f'{v:.3g}']
    for name, v in found.items()
  ]
  return f'# Clients of {task.name}\n\n' + tables.markdown(['', ''], rows), counts


def main_cli() -> None:
  """Console entry point."""
  command.run(main)


if __name__ == '__main__':
  main_cli()
