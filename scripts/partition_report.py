"""Shows how a task's clients differ: their sizes and the labels that they hold.

usage: {partition_report} --task=TASK [--flag=value ...]

Prints the numbers as a table; with --output, writes it to OUTPUT.md and a picture to OUTPUT.png:
the labels of each client, and the sizes of all clients.

  {partition_report} --task=digits --output=runs/digits_partition
  {partition_report} --task=mnist_skewed --data_dir=DIR --task_option=alpha=0.03

Labels are shown only if the targets of the task are classes (not text, tags or images).
"""

import dataclasses
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import figures, report
from tff_adaptive_tasks import summary
from tff_adaptive_tasks.data import partition

from .cli import command, fields, flags, tensorflow_start


@dataclasses.dataclass(frozen=True)
class _Report(fields.Group):
  """The flags that only this command has; `define_with_task` adds those of the task."""

  TITLE = 'Report'

  clients: int = fields.count('Clients shown in the picture.', 30, needs='output')
  output: str | None = fields.flag('Write OUTPUT.md and OUTPUT.png. Default: print.')


_MOST = 100  # The most classes that the table lists.
_FLAGS = flags.define_with_task(_Report)


@command.entry('partition_report.py', prints_result=lambda: not _FLAGS['output'].value)
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  task_options = flags.check_with_task(_FLAGS, _Report)
  tensorflow_start.load_tensorflow()
  task = flags.load_task(_FLAGS, task_options)
  text, labels, names = describe(task)
  if _FLAGS.output:
    command.check_output('output', _FLAGS.output)
    atomic_files.write_text(f'{_FLAGS.output}.md', text)
    count = _FLAGS.clients
    figures.draw_partition(
      f'{_FLAGS.output}.png',
      _sizes(task),
      labels[:count],
      task.name,
      names,
      task.train.client_ids[:count],
    )
  command.show(text)
  return command.DONE


def describe(task: Any) -> tuple[str, Any, list[str]]:
  """Returns a Markdown table of a task's clients, the label counts and the names of the classes.

  Label counts are int64 [clients, classes], or [] if the targets are not classes. The name of a
  class without a name is its number.
  """
  ids = task.train.client_ids
  # One client shows what kind of targets all have.
  first = task.train.load(ids[0])['y']
  rows = [['source', task.source]]
  names: list[str] = []
  counts: Any = []
  # Classes may be floats in the data, which the task's preparation then names.
  classes: Any = getattr(task.preparation, 'classes', None)
  if first.ndim == 1 and (first.dtype.kind in 'iu' or classes):
    counts = partition.counts_by_client([task.train.load(c)['y'].astype(int) for c in ids])
    numbers = partition.report_of_counts(counts)
    num_classes = counts.shape[1]
    classes = classes or range(num_classes)
    names = [str(name) for name in classes[:num_classes]]
    totals = counts.sum(axis=0).tolist()
    texts = [f'{name}: {total:,}' for name, total in zip(names, totals)]
    rows.append(['majority class', _majority(names, totals, task)])
    by_class = ', '.join(texts[:_MOST])
    if len(texts) > _MOST:
      by_class += f' and {len(texts) - _MOST} more'
    rows.append(['examples by class', by_class])
  else:
    numbers = partition.report_of_sizes(_sizes(task))
    if summary.has_labels(task.preparation):
      rows.append(['majority values', _majority_of_labels(task)])
    elif first.ndim == 1 and first.dtype.kind == 'f':
      rows.append(['mean of the targets', _mean(task)])
  for name, number in numbers.items():
    text = f'{number:.3g}'
    if isinstance(number, int):  # A count is shown in full.
      text = str(number)
    rows.append([name.replace('_', ' '), text])
  table = report.Table(['', ''], rows, title=f'Clients of {task.name}')
  return table.markdown(), counts, names


def _majority(names: Sequence[str], totals: Sequence[int], task: Any) -> str:
  """Formats the most frequent class, and the accuracy of always predicting it."""
  most = max(range(len(totals)), key=totals.__getitem__)
  share = totals[most] / sum(totals)
  accuracy = (task.validation['y'].astype(int) == most).mean()
  return (
    f'{names[most]}: {share:.1%} of the training examples; always predicting it has accuracy'
    f' {accuracy:.4f} on the validation data'
  )


def _majority_of_labels(task: Any) -> str:
  """Formats the more frequent value of each label, and the accuracy of always predicting these."""
  shares = task.train.load_all()['y'].mean(0)
  values = (shares > 0.5).astype(int)
  texts = []
  for name, value, share in zip(task.preparation.targets, values, shares):
    share_of_value = share if value else 1 - share
    texts.append(f'{name}: {value} ({share_of_value:.1%})')
  accuracy = (task.validation['y'] == values).mean()
  return (
    f'{", ".join(texts[:_MOST])} of the training examples; always predicting these has accuracy'
    f' {accuracy:.4f} on the validation data'
  )


def _mean(task: Any) -> str:
  """Formats the mean of the training targets, and the mean absolute error of predicting it."""
  total = sum(float(task.train.load(client)['y'].sum()) for client in task.train.client_ids)
  mean = total / sum(_sizes(task))
  error = abs(task.validation['y'] - mean).mean()
  return f'{mean:.4g}; always predicting it has mean absolute error {error:.4g} in validation'


def _sizes(task: Any) -> list[int]:
  """Returns the numbers of the clients' examples."""
  return [task.train.num_examples(client) for client in task.train.client_ids]


if __name__ == '__main__':
  sys.exit(main())
