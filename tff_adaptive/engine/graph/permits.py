"""Permits limit how many clients train at the same time, in any order.

A loop's own window (`parallel_iterations`) moves on only when its first client is done, so a large
client would delay those after it. Therefore the window is wide, and each client takes a permit
before it begins and gives it back when it is done. The order of the sums, and so every bit of a
result, stays the same.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.devices import placement
from tff_adaptive.engine.graph import values

SPEC = tf.TensorSpec([], tf.resource)
_MOST_BEGUN = 16
_MOST_BYTES = 2**28  # The most bytes of results that wait for their turn in the sums.


class Permits:
  """The permits of an engine, of which each call of a function gets `count` for itself."""

  def __init__(self, count: int):
    self._count = count
    self._free: list[Any] = []  # Queues, reused because making one takes 0.5 ms.

  @contextlib.contextmanager
  def of_a_call(self) -> Iterator[tf.Tensor]:
    """A context manager for one call of a function; yields its permits, for `take`, `give_back`."""
    try:
      queue = self._free.pop()
    except IndexError:
      queue = tf.queue.FIFOQueue(self._count, [tf.bool], shapes=[[]])
      queue.enqueue_many([[True] * self._count])
    yield queue.queue_ref
    self._free.append(queue)  # Not after an error: its clients gave no permit back.


def window(types: Sequence[tff.types.Type], count: int) -> int:
  """Returns `parallel_iterations` of a loop with `count` permits and client results of `types`."""
  size = 0
  for leaf in itertools.chain.from_iterable(map(values.leaf_types, types)):
    if not isinstance(leaf, tff.types.TensorType):  # A dataset's size is not known.
      return count + 1
    shape = values.tensor_shape(leaf)
    if not shape.is_fully_defined():
      return count + 1
    size += shape.num_elements() * np.dtype(leaf.dtype).itemsize
  return max(count + 1, min(_MOST_BEGUN, _MOST_BYTES // max(size, 1)))


def take(permits: tf.Tensor) -> list[tf.Tensor]:
  """Waits for a permit; returns tensors on which the client's work must depend."""
  with tf.device(placement.HOST):
    return tf.raw_ops.QueueDequeueV2(handle=permits, component_types=[tf.bool])


def give_back(permits: tf.Tensor, after: Sequence[Any]) -> None:
  """Gives a permit back once the tensors in `after` are computed."""
  tensors = [value for value in after if tf.is_tensor(value)]
  with tf.device(placement.HOST), tf.control_dependencies(tensors):
    tf.raw_ops.QueueEnqueueV2(handle=permits, components=[True])
