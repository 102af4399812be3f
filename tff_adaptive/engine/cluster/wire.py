"""Converts values of TFF types to flat lists of NumPy arrays, which any process can unpickle.

`tff.structure.Struct` cannot be unpickled, and tensors should not be. A dataset is sent as its
graph, which includes its data.
"""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import client_references
from tff_adaptive.engine.graph import datasets, values


class Keys(NamedTuple):
  """The keys by which a worker loads clients' values from a `client_references.Source`."""

  source: str  # The name of the source.
  pickled: bytes  # The list of the keys, pickled.


def is_divided(type_spec: tff.types.Type) -> bool:
  """Returns whether values of a type are divided: a list with one value for each client."""
  return (
    isinstance(type_spec, tff.types.FederatedType)
    and type_spec.placement is tff.CLIENTS
    and not type_spec.all_equal
  )


def member(type_spec: tff.types.Type) -> tff.types.Type:
  """Returns the type without its placement."""
  if isinstance(type_spec, tff.types.FederatedType):
    return type_spec.member
  return type_spec


def encode(value: Any, type_spec: tff.types.Type) -> list[Any]:
  """Returns the list of a value's leaves, or, if it `is_divided`, a list of them for each client.

  A leaf is a NumPy array. The leaf of a sequence is the dataset's graph as bytes, or, if the value
  is a list of elements, a list of encoded elements.
  """
  if is_divided(type_spec):
    return [encode(row, type_spec.member) for row in value]
  type_spec = member(type_spec)
  leaves = values.flatten(value, type_spec)
  return [_encode_leaf(leaf, t) for leaf, t in zip(leaves, values.leaf_types(type_spec))]


def _encode_leaf(leaf: Any, type_spec: tff.types.Type) -> Any:
  if not isinstance(type_spec, tff.types.SequenceType):
    fits = isinstance(leaf, np.ndarray) and leaf.dtype == type_spec.dtype
    if fits and values.tensor_shape(type_spec).is_compatible_with(leaf.shape):
      return leaf
    return np.asarray(values.to_tensor(leaf, type_spec))
  if isinstance(leaf, (list, tuple)):
    return [encode(element, type_spec.element) for element in leaf]
  return _graph_of(datasets.variant(leaf, type_spec.element))


def as_arrays(sums: list[list[Any]]) -> list[list[Any]]:
  """Encodes accumulators, which are flat tensors and datasets, in the form of `encode`."""
  return [list(map(_as_array, flat)) for flat in sums]


def _as_array(leaf: Any) -> Any:
  if isinstance(leaf, tf.data.Dataset):
    return _graph_of(tf.data.experimental.to_variant(leaf))
  return np.asarray(leaf)


def _graph_of(variant: tf.Tensor) -> bytes:
  return tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()


def as_tensors(flat: list[Any]) -> list[Any]:
  """Copies encoded arrays into tensors, so that the engine does not copy them in each call."""
  tensors = []
  for leaf in flat:
    if isinstance(leaf, np.ndarray):
      leaf = tf.convert_to_tensor(leaf)
    tensors.append(leaf)
  return tensors


def decode(flat: list[Any], type_spec: tff.types.Type) -> Any:
  """Returns the value that was given to `encode`, as an argument for the graph engine."""
  if is_divided(type_spec):
    return [decode(row, type_spec.member) for row in flat]
  type_spec = member(type_spec)
  types = values.leaf_types(type_spec)
  return values.pack([_decode_leaf(leaf, t) for leaf, t in zip(flat, types)], type_spec)


def to_python(flat: list[Any], type_spec: tff.types.Type) -> Any:
  """Inverts `encode` as `decode` does, but with the Python containers that the type names."""
  if is_divided(type_spec):
    return [to_python(row, type_spec.member) for row in flat]
  type_spec = member(type_spec)
  return values.to_python(values.flatten(decode(flat, type_spec), type_spec), type_spec)


def _decode_leaf(leaf: Any, type_spec: tff.types.Type) -> Any:
  if isinstance(leaf, list):
    return [to_python(row, type_spec.element) for row in leaf]
  if isinstance(leaf, bytes):
    variant = tf.raw_ops.DatasetFromGraph(graph_def=leaf)
    return tf.data.experimental.from_variant(variant, _element_spec(type_spec.element))
  if isinstance(leaf, np.ndarray) and not leaf.ndim:
    return leaf[()]  # A NumPy number, as TFF returns it.
  return leaf


def _element_spec(type_spec: tff.types.Type) -> Any:
  """Returns a dataset's element spec of dicts and tuples; a type that was sent lacks containers."""
  if not isinstance(type_spec, tff.types.StructType):
    return values.tensor_spec(type_spec)
  children = values.children(type_spec)
  if all(name is not None for name, _ in children):
    return collections.OrderedDict((name, _element_spec(child)) for name, child in children)
  return tuple(_element_spec(child) for _, child in children)


def in_order(pieces: Sequence[Sequence[Any]], parts: Sequence[Sequence[int]]) -> list[Any]:
  """Returns the clients' values in the cohort's order, given values and positions by subround."""
  by_position: dict[int, Any] = {}
  for part, piece in zip(parts, pieces):
    by_position.update(zip(part, piece))
  return [by_position[position] for position in sorted(by_position)]


def cost(value: Any, type_spec: tff.types.Type) -> int:
  """Returns a client's cost: the number of examples of its longest sequence, at least 1."""
  if isinstance(value, client_references.ClientReference):
    return max(1, value.num_examples)
  longest = 1
  for leaf, t in zip(values.flatten(value, type_spec), values.leaf_types(type_spec)):
    if isinstance(t, tff.types.SequenceType):
      longest = max(longest, _num_examples(leaf, t.element))
  return longest


def _num_examples(sequence: Any, element_type: tff.types.Type) -> int:
  if isinstance(sequence, tf.data.Dataset):
    return int(sequence.cardinality())  # Negative if it is not known.
  if len(sequence) != 1:
    return len(sequence)
  # A client's data as one element: its examples are the rows of the element's arrays.
  arrays = values.flatten(sequence[0], element_type)
  return max([np.shape(a)[0] for a in arrays if np.ndim(a)], default=1)
