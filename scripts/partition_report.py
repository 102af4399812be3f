"""Shows how a task's clients differ: their sizes and the labels that they hold.

usage: python scripts/partition_report.py --task=TASK [--flag=value ...]

Prints the numbers as a table; with --output, writes it to OUTPUT.md and a picture to OUTPUT.png:
the labels of each client, and the sizes of all clients.

  python scripts/partition_report.py --task=digits --output=results/digits_partition
  python scripts/partition_report.py --task=mnist_skewed --data_dir=DIR --task_option=alpha=0.03

Labels are shown only if the targets of the task are classes (not text, tags or images).
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import figures, report
from tff_adaptive_tasks.data import partition

from .cli import command, fields, flags


@dataclasses.dataclass(frozen=True)
class _Report(fields.Group):
  """The flags that only this command has; `define_with_task` adds those of the task."""

  TITLE = 'Report'

  clients: int = fields.count('Clients shown in the picture.', 30, needs='output')
  output: str | None = fields.flag('Write OUTPUT.md and OUTPUT.png. Default: print.')


_MOST = 100  # The most classes that the table lists.
_FLAGS = flags.define_with_task(_Report)


@command.entry('partition_report.py', prints_result=True)
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  task_options = flags.check_with_task(_FLAGS, _Report)
  task = flags.load_task(_FLAGS, task_options)
  text, labels, names = describe(task)
  if _FLAGS.output:
    command.check_output('output', _FLAGS.output)
    atomic_files.write_text(f'{_FLAGS.output}.md', text)
    sizes = [task.train.num_examples(client) for client in task.train.client_ids]
    figures.draw_partition(
      f'{_FLAGS.output}.png', sizes, labels[: _FLAGS.clients], task.name, names
    )
  command.show(text)
  return command.DONE


def describe(task: Any) -> tuple[str, Any, list[str]]:
  """Returns a Markdown table of a task's clients, the label counts and the names of the classes.

  Label counts are int64 [clients, classes], or [] if the targets are not classes. The name of a
  class without a name is its number.
  """
  ids = task.train.client_ids
  first = task.train.load(ids[0])['y']
  rows = [['source', task.source]]
  names: list[str] = []
  known: Any = getattr(task.preparation, 'classes', None)
  if first.ndim == 1 and (first.dtype.kind in 'iu' or known):
    counts: Any = partition.counts_by_client([task.train.load(c)['y'].astype(int) for c in ids])
    found = partition.report_of_counts(counts)
    known = known or range(counts.shape[1])
    names = list(map(str, known[: counts.shape[1]]))
    rows.append(['majority class', _majority(names, counts.sum(0), task)])
    shares = [f'{name}: {n:,}' for name, n in zip(names, counts.sum(0).tolist())]
    more = f' and {len(shares) - _MOST} more' if len(shares) > _MOST else ''
    rows.append(['examples by class', ', '.join(shares[:_MOST]) + more])
  else:
    sizes = [task.train.num_examples(client) for client in ids]
    counts, found = [], partition.report_of_sizes(sizes)
    if first.ndim == 1 and first.dtype.kind == 'f':
      rows.append(['mean of the targets', _mean(task)])
  rows += [
    [name.replace('_', ' '), str(v) if isinstance(v, int) else f'{v:.3g}']
    for name, v in found.items()
  ]
  table = report.Table(['', ''], rows, title=f'Clients of {task.name}')
  return table.markdown(), counts, names


def _majority(names: Sequence[str], counts: Any, task: Any) -> str:
  """Formats the most frequent class, and the accuracy of always predicting it."""
  most = int(counts.argmax())
  validation = task.validation['y'].astype(int)
  return (
    f'{names[most]}: {counts[most] / counts.sum():.1%} of the training examples; always predicting'
    f' it has accuracy {(validation == most).mean():.4f} on the validation data'
  )


def _mean(task: Any) -> str:
  """Formats the mean of the training targets, and the mean absolute error of predicting it."""
  total = sum(float(task.train.load(client)['y'].sum()) for client in task.train.client_ids)
  mean = total / sum(task.train.num_examples(client) for client in task.train.client_ids)
  error = abs(task.validation['y'] - mean).mean()
  return f'{mean:.4g}; always predicting it has mean absolute error {error:.4g} in validation'


if __name__ == '__main__':
  sys.exit(main())
