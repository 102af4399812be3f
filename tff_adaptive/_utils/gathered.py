"""Brings clients' tensors to the server, stacked in the order of the clients.

An engine that trains a cohort in parts has the rows in the order of the parts. It knows what is
gathered by the type of the accumulator, and puts the rows in the order of the cohort.
"""

import collections
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

# The name of the only element of an accumulator whose tensors have a row for each client.
ROWS = 'tff_adaptive_rows_of_clients'


def gather(values: Any) -> Any:
  """Returns clients' tensors at the server, stacked along a new first axis of length m.

  It is for a `tff.federated_computation`. `values` is placed at the clients: a tensor, or a tuple.
  """
  member = values.type_signature.member
  accumulator_type = tff.types.to_type(_as_rows(rows_type(member)))

  @tff.tensorflow.computation
  def zero() -> Any:
    def nothing(tensor_type: Any) -> tf.Tensor:
      shape = [0, *tensor_type.shape]
      none = tf.zeros(shape, tensor_type.dtype)
      return tf.compat.v1.placeholder_with_default(none, [None, *tensor_type.shape])

    return _as_rows(_each(nothing, member))

  @tff.tensorflow.computation(accumulator_type, member)
  def accumulate(rows: Any, value: Any) -> Any:
    return _as_rows(
      tf.nest.map_structure(lambda r, v: tf.concat([r, v[tf.newaxis]], 0), rows[ROWS], value)
    )

  @tff.tensorflow.computation(accumulator_type, accumulator_type)
  def merge(first: Any, second: Any) -> Any:
    return tf.nest.map_structure(lambda a, b: tf.concat([a, b], 0), first, second)

  @tff.tensorflow.computation(accumulator_type)
  def report(rows: Any) -> Any:
    return rows[ROWS]

  return tff.federated_aggregate(values, zero(), accumulate, merge, report)


def has_rows_of_clients(accumulator_type: Any) -> bool:
  """Returns whether an accumulator of this type is one of `gather`."""
  if not isinstance(accumulator_type, tff.types.StructType):
    return False
  return [name for name, _ in tff.structure.iter_elements(accumulator_type)] == [ROWS]


def _as_rows(rows: Any) -> Any:
  return collections.OrderedDict([(ROWS, rows)])


def _each(function: Callable[[Any], Any], member: Any) -> Any:
  """Applies a function to a tensor type, or to each element of a tuple's type."""
  if isinstance(member, tff.types.StructType):
    return tuple(function(element) for element in member)
  return function(member)


def rows_type(member: Any) -> Any:
  """Returns the type of a client's tensor or tuple with a first axis of unknown length."""

  def rows(tensor_type: Any) -> tff.types.TensorType:
    return tff.types.TensorType(tensor_type.dtype, [None, *tensor_type.shape])

  return tff.types.to_type(_each(rows, member))
