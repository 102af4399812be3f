"""Shows how a task's clients differ: their sizes and the labels that they hold.

usage: python scripts/partition_report.py --task=TASK [--flag=value ...]

Prints the numbers as a table; with --output, writes it to OUTPUT.md and a picture to OUTPUT.png:
the labels of each client, and the sizes of all clients.

  python scripts/partition_report.py --task=digits --output=results/digits_partition
  python scripts/partition_report.py --task=mnist_skewed --data_dir=DIR --task_option=alpha=0.03

The labels of a task whose targets are no classes (text, tags, images) are not shown.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import figures, tables
from tff_adaptive_tasks.data import partition_stats

from .cli import command, fields, flags, tensorflow_start


@dataclasses.dataclass(frozen=True)
class _Report(fields.Group):
  """Its own flags; the others are as of train.py."""

  TITLE = 'Report'

  clients: int = fields.count('Clients shown in the picture.', 30)
  output: str | None = fields.flag('Where to write: OUTPUT.md and OUTPUT.png. Default: print.')


_FLAGS = flags.define_with_task(_Report)


@command.entry('partition_report.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  task_options = flags.check_with_task(_FLAGS, _Report)
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
  """The numbers of a task's clients in Markdown; label counts int64 [clients, classes], or []."""
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
