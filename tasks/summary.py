"""Says in words what a task is: what is predicted, from what, by which clients.

Nothing here imports TensorFlow.
"""

import collections
from collections.abc import Iterable
from typing import Any

import numpy as np

from tff_adaptive_tasks import preparation as preparation_lib, task as task_lib

_MOST_CLASSES = 10  # Of more classes only the most frequent ones are named.
_MOST_COLUMNS = 12
_LONGEST = 40  # Letters of a name.
_NUM_DATE_PARTS = 5


def in_one_line(task: task_lib.Task) -> str:
  """Returns the task's name, its sizes, what it predicts and where its data are from."""
  ids = task.train.client_ids
  count = sum(map(task.train.num_examples, ids))
  shape = list(np.shape(task.validation['x'])[1:])
  return (
    f'Task {task.name!r}: {_counted(len(ids), "client")} with {_counted(count, "example")}, '
    f'{_counted(len(task.validation["y"]), "validation example")}, inputs {shape}, '
    f'{_targets(task)}; {task.source}'
  )


def describe(task: task_lib.Task) -> list[str]:
  """Returns in three lines what a user's own data were understood as: targets, inputs, clients.

  Args:
    task: A task of `from_arrays` and the functions that call it; for others nothing is returned.
  """
  # Data of other tasks may be too large to be read for a description.
  if not task.validated_by:
    return []
  return [
    f'Predicts {_named_targets(task)}.',
    f'Inputs: {_inputs(task)}.',
    f'Clients: {_clients(task)}.',
  ]


def _targets(task: task_lib.Task) -> str:
  """Returns the kind of the targets, such as '10 classes', without looking at all of them."""
  prepared = task.preparation
  y = np.asarray(task.validation['y'])
  if isinstance(prepared, preparation_lib.Preparation):
    if prepared.classes is not None:
      return f'{len(prepared.classes):,} classes'
    if has_labels(prepared):
      return f'{y.shape[1]} labels'
  kind = 'class numbers' if y.dtype.kind in 'iu' else 'numbers'
  if y.ndim == 1:
    return f'targets: {kind}'
  return f'targets: {kind} {list(y.shape[1:])}'


def has_labels(prepared: Any) -> bool:
  """Returns whether a task with this preparation predicts several labels of 0 or 1."""
  if not isinstance(prepared, preparation_lib.Preparation):
    return False
  names = prepared.targets or ()
  return len(names) > 1 and prepared.threshold is not None


def _named_targets(task: task_lib.Task) -> str:
  """Returns the names of the targets with the classes' shares, or the numbers' range."""
  # Shares are of training examples: the held-out ones are for evaluation alone.
  y = task.train.load_all()['y']
  prepared = task.preparation
  if not isinstance(prepared, preparation_lib.Preparation):
    prepared = preparation_lib.Preparation()
  names = prepared.targets or ('the target',)
  if prepared.classes is not None:
    return f'{_short(names[0])}: {_shares(y.ravel().astype(int), prepared.classes)}'
  if has_labels(prepared):
    shares = [f'{_short(name)} {share:.1%}' for name, share in zip(names, y.mean(0))]
    return f'{len(names)} labels of 0 or 1; the share of 1: {_listed(shares, ", ")}'
  columns = y.reshape(len(y), -1).T
  if len(columns) != len(names):
    return f'{len(columns)} numbers from {y.min():.4g} to {y.max():.4g}'
  ranges = []
  for name, column in zip(names, columns):
    limits = f'from {column.min():.4g} to {column.max():.4g}, mean {column.mean():.4g}'
    ranges.append(f'{_short(name)}: numbers {limits}')
  return _listed(ranges, '; ')


def _shares(y: np.ndarray, labels: tuple[Any, ...]) -> str:
  """Returns the number of classes and the share of each, of many the most frequent ones."""
  counts = collections.Counter(y.tolist())
  numbers = list(range(len(labels)))
  words = ''
  if len(labels) > _MOST_CLASSES:
    numbers = [number for number, _ in counts.most_common(3)]
    words = ', the most frequent'
  shares = [f'{_short(labels[number])} {counts[number] / len(y):.1%}' for number in numbers]
  return f'{len(labels):,} classes{words}: {", ".join(shares)}'


def _inputs(task: task_lib.Task) -> str:
  """Returns the columns, with how many inputs each becomes, or the shape of an input."""
  prepared = task.preparation
  x = np.asarray(task.validation['x'])
  scaled = ''
  # One number for all inputs is the scale of pixels, not a standardisation by column.
  if isinstance(prepared, preparation_lib.Preparation) and isinstance(prepared.mean, tuple):
    scaled = ', standardised'
  columns = getattr(prepared, 'columns', None)
  if columns is None:
    return f'arrays of shape {list(x.shape[1:])} and dtype {x.dtype}{scaled}'
  parts = []
  for column in columns:
    name = _short(column.name)
    if column.categories is not None:
      name += f' ({len(column.categories)} categories)'
    elif column.dates == 'parts':
      name += f' (date, {_NUM_DATE_PARTS} parts)'
    elif column.dates is not None:
      name += ' (date in days)'
    parts.append(name)
  return f'{_listed(parts, ", ")}; {_counted(x.shape[1], "number")} an example{scaled}'


def _clients(task: task_lib.Task) -> str:
  """Returns the number of clients, the smallest and the largest one, and who validates."""
  sizes = {client: task.train.num_examples(client) for client in task.train.client_ids}
  smallest = min(sizes, key=lambda client: sizes[client])
  largest = max(sizes, key=lambda client: sizes[client])
  return (
    f'{len(sizes):,} train, with {sizes[smallest]:,} (client {_short(smallest)}) to '
    f'{sizes[largest]:,} (client {_short(largest)}) examples; validation on '
    f'{len(task.validation["y"]):,}, of {task.validated_by}'
  )


def _short(name: Any) -> str:
  text = str(name)
  if len(text) > _LONGEST:
    return f'{text[: _LONGEST - 3]}...'
  return text


def _listed(parts: Iterable[str], separator: str) -> str:
  """Returns the first parts, and how many more there are."""
  listed = list(parts)
  more = len(listed) - _MOST_COLUMNS
  if more > 0:
    listed = [*listed[:_MOST_COLUMNS], f'and {more:,} more']
  return separator.join(listed)


def _counted(count: int, what: str) -> str:
  if count == 1:
    return f'1 {what}'
  return f'{count:,} {what}s'
