"""The intrinsics on sequences, by tf.data: map, reduce, sum, and the selection of slices.

The functions for `tff.sequence_...` take the intrinsic's building block and its argument.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.engine.graph import values


def _dataset(sequence: values.Sequence, element_type: tff.types.Type) -> tf.data.Dataset:
  specs = values.element_spec(element_type)
  return tf.data.experimental.from_variant(sequence.variant(), specs)


def _to_sequence(dataset: tf.data.Dataset) -> values.Sequence:
  return values.Sequence(variant=tf.data.experimental.to_variant(dataset))


def _from_element(element: Any, element_type: tff.types.Type) -> Any:
  """Converts a dataset's element to a value; tf.data orders a dictionary's fields by name."""
  leaves = tf.nest.flatten(element)
  in_order = [leaf for _, leaf in sorted(zip(values.dataset_order(element_type), leaves))]
  return values.pack(in_order, element_type)


def map_sequence(block: Any, arguments: Any) -> values.Sequence:
  """Evaluates `tff.sequence_map`, given a function and a sequence."""
  function, sequence = arguments
  type_spec = block.type_signature.parameter[0]
  element_type = type_spec.parameter
  result_type = type_spec.result

  def one(*element: Any) -> Any:
    result = function(_from_element(element, element_type))
    return values.to_python(values.flatten(result, result_type), result_type)

  return _to_sequence(_dataset(sequence, element_type).map(one))


def reduce_sequence(block: Any, arguments: Any) -> Any:
  """Evaluates `tff.sequence_reduce` of a sequence, a zero, and a function of (state, element)."""
  sequence, zero, function = arguments
  type_spec = block.type_signature.parameter[2]
  return _reduce(sequence, zero, function, type_spec.result, type_spec.parameter[1])


def sum_sequence(block: Any, sequence: values.Sequence) -> Any:
  """Evaluates `tff.sequence_sum`, given a sequence."""
  element_type = block.type_signature.result
  zeros = [tf.zeros(t.shape, t.dtype) for t in values.leaf_types(element_type)]

  def add(pair: Any) -> Any:
    total, element = pair
    leaves = zip(values.flatten(total, element_type), values.flatten(element, element_type))
    return values.pack([a + b for a, b in leaves], element_type)

  return _reduce(sequence, values.pack(zeros, element_type), add, element_type, element_type)


def _reduce(
  sequence: values.Sequence,
  zero: Any,
  function: Callable[[Any], Any],
  state_type: tff.types.Type,
  element_type: tff.types.Type,
) -> Any:
  # tf.data knows no TFF structs, so its state is a flat tuple of leaves.
  def add(state: Any, element: Any) -> tuple:
    pair = [(None, values.pack(list(state), state_type))]
    pair.append((None, _from_element(element, element_type)))
    return tuple(values.flatten(function(tff.structure.Struct(pair)), state_type))

  start = tuple(values.flatten(zero, state_type))
  return values.pack(list(_dataset(sequence, element_type).reduce(start, add)), state_type)


def select(
  keys: tf.Tensor, server_value: Any, function: Callable[[Any], Any], type_spec: tff.types.Type
) -> values.Sequence:
  """Evaluates `tff.federated_select` for a client: a slice of the server's value for each key."""

  def one(key: tf.Tensor) -> Any:
    result = function(tff.structure.Struct([(None, server_value), (None, key)]))
    return values.to_python(values.flatten(result, type_spec), type_spec)

  return _to_sequence(tf.data.Dataset.from_tensor_slices(keys).map(one))
