"""Stacks the clients' values, wrapped in datasets if their type does not fix their shape."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.engine.graph import values


def box(value: tf.Tensor, type_spec: tff.types.Type) -> Any:
  """Returns a tensor (in a dataset if its type does not fix its shape) or a sequence's variant."""
  if isinstance(value, values.Sequence):
    return value.variant()
  if values.tensor_shape(type_spec).is_fully_defined():
    return value
  return tf.raw_ops.TensorDataset(components=[value], output_shapes=[value.shape])


def unbox(value: tf.Tensor, type_spec: tff.types.Type) -> Any:
  """Inverts `box`. A sequence becomes a `values.Sequence` in a graph, else a dataset."""
  if isinstance(type_spec, tff.types.SequenceType):
    if tf.inside_function():
      return values.Sequence(variant=value)
    return tf.data.experimental.from_variant(value, values.element_spec(type_spec.element))
  if value.dtype != tf.variant:
    return value
  shape = values.tensor_shape(type_spec)
  return tf.raw_ops.DatasetToSingleElement(
    dataset=value, output_types=[tf.dtypes.as_dtype(type_spec.dtype)], output_shapes=[shape]
  )[0]


def output_array(type_spec: tff.types.Type, size: tf.Tensor) -> tf.TensorArray:
  """Creates a TensorArray for one leaf of `size` clients' results, which `box` has wrapped."""
  is_sequence = isinstance(type_spec, tff.types.SequenceType)
  if is_sequence or not values.tensor_shape(type_spec).is_fully_defined():
    return tf.TensorArray(tf.variant, size, element_shape=[])
  spec = values.tensor_spec(type_spec)
  return tf.TensorArray(spec.dtype, size, element_shape=spec.shape)


def read_stacked(stacked: list[tf.Tensor], type_spec: tff.types.Type, i: tf.Tensor) -> Any:
  """Returns the value of client `i`. `stacked` has each leaf of all values, stacked by client."""
  leaf_types = values.leaf_types(type_spec)
  return values.pack([unbox(s[i], t) for s, t in zip(stacked, leaf_types)], type_spec)


def share(device: int, num_devices: int, num_clients: tf.Tensor) -> tf.Tensor:
  """Returns the positions of a device's clients. Devices take turns, as sizes may be sorted."""
  # `maximum`: tf.range refuses a start above the limit, and there may be more devices than clients.
  return tf.range(device, tf.maximum(num_clients, device), num_devices)


def interleave(parts: Sequence[tf.Tensor], num_clients: tf.Tensor) -> tf.Tensor:
  """Joins the stacked values of each device's `share` in the order of the cohort."""
  return tf.gather(_join(parts), places(len(parts), num_clients))


def places(num_devices: int, num_clients: tf.Tensor) -> tf.Tensor:
  """Returns where each client of the cohort is in the devices' shares, one after another."""
  order = [share(d, num_devices, num_clients) for d in range(num_devices)]
  return tf.math.invert_permutation(tf.concat(order, 0))


def _join(parts: Sequence[tf.Tensor]) -> tf.Tensor:
  if parts[0].dtype != tf.variant:
    return tf.concat(parts, 0)
  # tf.concat does not accept datasets, but the ops for lists of tensors do.
  joined, *others = [
    tf.raw_ops.TensorListFromTensor(tensor=part, element_shape=tf.zeros([0], tf.int32))
    for part in parts
  ]
  for other in others:
    joined = tf.raw_ops.TensorListConcatLists(
      input_a=joined, input_b=other, element_dtype=tf.variant
    )
  return tf.raw_ops.TensorListStack(
    input_handle=joined, element_shape=tf.zeros([0], tf.int32), element_dtype=tf.variant
  )
