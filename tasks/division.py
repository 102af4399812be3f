"""Divides the clients of a task anew: what `--task_option=partition=NAME` does."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tff_adaptive._utils import suggestions
from tff_adaptive_tasks import errors, options as options_lib, partition, task as task_lib

# Options of tasks that say how these divide their data, so that another partition replaces them.
_OF_TASKS = ('alpha', 'unbalance', 'split', 'workers')


@dataclasses.dataclass(frozen=True)
class Division:
  """How the examples of a task's training clients are divided anew.

  Attributes:
    partitioner: Decides who has which example.
    feature_noise: See `partition.feature_noise`; 0 for none.
    seed: The seed of the noise.
  """

  partitioner: partition.Partitioner
  feature_noise: float = 0.0
  seed: int = 0


def from_options(
  name: str, seed: int, options: Mapping[str, Any]
) -> tuple[Division, dict[str, Any]]:
  """Takes what says how to divide from the options of a task.

  Args:
    name: The name of the task, for messages.
    seed: The seed of the division, unless the options have one.
    options: The options of the task, among them `partition`.

  Returns:
    The division, and the other options.

  Raises:
    DataError: If there is no such partition, or the options do not fit it.
  """
  rest = dict(options)
  kind = rest.pop('partition')
  if kind not in partition.NAMES:
    raise errors.DataError(suggestions.unknown('partition', kind, partition.NAMES))
  what = f'task {name!r} with partition={kind}'
  build = partition.NAMES[kind]
  fields = _fields(build)
  noise = options_lib.converted(
    f'the option feature_noise of the {what}', rest.pop('feature_noise', 0.0), float
  )
  # Tasks call it num_clients, Flower Datasets num_partitions.
  if 'num_clients' in rest:
    if 'num_partitions' in rest:
      raise errors.DataError(f'num_clients and num_partitions are the same to the {what}: give one')
    rest['num_partitions'] = rest.pop('num_clients')
  arguments = {key: rest.pop(key) for key in fields if key in rest}
  if 'num_partitions' not in arguments and kind not in ('pfllib', 'pfllib_pathological'):
    raise errors.DataError(f'the {what} needs a number of clients: give the option num_clients')
  # An option that the new partition does not have would be ignored without a word.
  of_divisions = set(_OF_TASKS)
  for partitioner_class in partition.NAMES.values():
    of_divisions.update(_fields(partitioner_class))
  others = sorted(of_divisions.intersection(rest))
  if others:
    allowed = ', '.join(['num_clients', *fields[1:], 'feature_noise'])
    raise errors.DataError(f'the {what} has no option {", ".join(others)}; it has: {allowed}')
  if not kind.startswith('pfllib'):  # These have PFLlib's own seed.
    arguments.setdefault('seed', seed)
  with _names_of_tasks():
    partitioner = build(**options_lib.checked(what, build, arguments, reserved=()))
  return Division(partitioner, noise, seed), rest


@contextlib.contextmanager
def _names_of_tasks() -> Iterator[None]:
  """A context in which messages name the option of a task, and not the partitioner's field."""
  try:
    yield
  except errors.DataError as error:
    raise errors.DataError(str(error).replace('num_partitions', 'num_clients')) from None


def _fields(cls: Any) -> list[str]:
  return [field.name for field in dataclasses.fields(cls)]


def divide(task: task_lib.Task, division: Division) -> task_lib.Task:
  """Returns the task with its training examples divided over other clients.

  The examples that were for evaluation stay so. `test_clients`, which had further examples of the
  former clients, are left out.

  Args:
    task: The task.
    division: How to divide.

  Raises:
    DataError: If examples of the task belong together, the labels are no classes, or the
      partitioner raises it.
  """
  if task.unit_starts is not None:
    raise errors.DataError(
      f'the task {task.name!r} has sequences of examples that stay together: no partition can '
      'divide them'
    )
  examples = task.train.load_all()
  with _names_of_tasks():
    parts = division.partitioner(_labels(examples['y']))
  x = examples['x']
  if division.feature_noise:
    x = partition.feature_noise(x, parts, division.feature_noise, division.seed)
  # A former client's further examples are of no client now.
  return dataclasses.replace(
    task,
    train=task_lib.InMemoryClientData.from_partition(x, examples['y'], parts),
    test_clients=None,
    source=f'{task.source}, divided by {division.partitioner}',
  )


def _labels(y: np.ndarray) -> np.ndarray:
  """Returns targets as classes: floating-point zeros and ones are those of a binary task."""
  if y.ndim == 1 and y.dtype.kind == 'f' and np.isin(y, (0, 1)).all():
    return y.astype(np.int64)
  return y
