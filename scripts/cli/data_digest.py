"""Tells the data of one run from those of another that have the same numbers of examples."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tff_adaptive_tasks import preparation as preparation_lib, task as task_lib


def of(task: task_lib.Task) -> str:
  """Returns the SHA-256 of a task's clients, targets, inputs and preparation, in hex.

  Clients that are not in memory are left out. So are inputs that were standardised: their last bits
  may be others on another machine, where a run is to be resumed all the same.
  """
  digest = hashlib.sha256()
  for part in _parts(task):
    digest.update(f'{len(part)} '.encode())
    digest.update(part)
  return digest.hexdigest()


def _parts(task: task_lib.Task) -> Iterator[bytes | memoryview]:
  prepared = task.preparation
  has_inputs = True
  if isinstance(prepared, preparation_lib.Preparation):
    has_inputs = prepared.mean is None
    columns = []
    for column in prepared.columns or ():
      columns.append((column.name, column.categories, column.dates))
    yield repr((columns, prepared.classes, prepared.targets, prepared.is_numbers)).encode()
  yield from _of_examples(task.validation, has_inputs)
  if isinstance(task.train, task_lib.InMemoryClientData):
    for client in task.train.client_ids:
      yield str(client).encode()
      yield from _of_examples(task.train.load(client), has_inputs)


def _of_examples(examples: Any, has_inputs: bool) -> Iterator[bytes | memoryview]:
  for name in ('x', 'y') if has_inputs else ('y',):
    for array in _leaves(examples[name]):
      yield f'{array.dtype} {array.shape}'.encode()
      if array.dtype == object:  # Such as texts of unlike lengths.
        yield repr(array.tolist()).encode()
      else:
        yield array.reshape(-1).view(np.uint8).data  # Not a copy: pictures may be large.


def _leaves(value: Any) -> Iterator[np.ndarray]:
  """Yields the arrays of one or several inputs or targets, as `client_arrays` takes them."""
  if isinstance(value, Mapping):
    for part in value.values():
      yield from _leaves(part)
  elif isinstance(value, tuple):
    for part in value:
      yield from _leaves(part)
  else:
    yield np.ascontiguousarray(value)
