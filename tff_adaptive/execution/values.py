"""Values of TFF types as flat lists of tensors, and back."""

import collections
from collections.abc import Callable, Mapping
from typing import Any, Optional

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff


class Sequence:
  """A `tff.SequenceType` value inside a graph: a dataset variant, or its only element."""

  def __init__(self, *, variant: Optional[tf.Tensor] = None, element: Optional[list] = None):
    self._variant = variant
    self._element = element

  def variant(self) -> tf.Tensor:
    """The dataset as a scalar variant tensor."""
    if self._variant is None:
      self._variant = tf.raw_ops.TensorDataset(
        components=self._element, output_shapes=[t.shape for t in self._element]
      )
    return self._variant

  def whole(self) -> list[tf.Tensor]:
    """The tensors of the only element; an error at run time if there is not exactly one."""
    if self._element is None:
      raise NotImplementedError(
        'this computation reads a client as ONE element (all its examples), so each client must '
        'be given as a list with one element, not as a tf.data.Dataset'
      )
    return self._element


def children(type_spec: tff.types.StructType) -> list[tuple[Optional[str], tff.types.Type]]:
  """Names and types of a struct's elements."""
  return list(tff.structure.iter_elements(type_spec))


def leaf_types(type_spec: tff.types.Type) -> list[tff.types.Type]:
  """The tensor and sequence types of an unplaced type, in order."""
  if isinstance(type_spec, tff.types.StructType):
    return [leaf for _, child in children(type_spec) for leaf in leaf_types(child)]
  return [type_spec]


def dataset_order(element_type: tff.types.Type) -> list[int]:
  """Positions in `leaf_types` of a dataset's components: tf.data sorts dictionaries by key."""
  count = len(leaf_types(element_type))
  return [int(i) for i in tf.nest.flatten(to_python(list(range(count)), element_type))]


def struct_elements(value: Any, type_spec: tff.types.StructType) -> list[Any]:
  """The elements of a Python container, in the order of its type.

  Raises:
    TypeError: If the container does not fit the type; both are named.
  """
  wanted = children(type_spec)
  if isinstance(value, tff.structure.Struct):
    elements = [v for _, v in tff.structure.iter_elements(value)]
  elif isinstance(value, Mapping):
    names = [name for name, _ in wanted]
    if set(names) != set(value):
      raise TypeError(f'expected fields {names} (type {type_spec}), found {list(value)}')
    elements = [value[name] for name in names]
  elif attrs.has(type(value)):
    elements = [getattr(value, field.name) for field in attrs.fields(type(value))]
  elif isinstance(value, (list, tuple)):
    elements = list(value)
  else:
    raise TypeError(f'expected a structure of type {type_spec}, found {type(value).__name__}')
  if len(elements) != len(wanted):
    raise TypeError(f'expected {len(wanted)} elements (type {type_spec}), found {len(elements)}')
  return elements


def flatten(value: Any, type_spec: tff.types.Type) -> list[Any]:
  """Leaves of an unplaced value in the order of `leaf_types`."""
  if not isinstance(type_spec, tff.types.StructType):
    return [value]
  flat = []
  for element, (_, child) in zip(struct_elements(value, type_spec), children(type_spec)):
    flat.extend(flatten(element, child))
  return flat


def pack(flat: list[Any], type_spec: tff.types.Type) -> Any:
  """The inverse of `flatten`, with `tff.structure.Struct` as the container."""
  leaves = iter(flat)

  def build(t):
    if isinstance(t, tff.types.StructType):
      return tff.structure.Struct([(name, build(child)) for name, child in children(t)])
    return next(leaves)

  return build(type_spec)


def to_python(flat: list[Any], type_spec: tff.types.Type) -> Any:
  """As `pack`, with the Python containers that the type names."""
  return tff.types.type_to_py_container(pack(flat, type_spec), type_spec)


def to_tensor(value: Any, type_spec: tff.types.TensorType) -> tf.Tensor:
  """A tensor of the type.

  Raises:
    TypeError: If the value has another dtype or shape; both are named.
  """
  dtype = tf.dtypes.as_dtype(type_spec.dtype)
  if not tf.is_tensor(value) and not isinstance(value, np.ndarray):
    value = tf.convert_to_tensor(value, dtype)  # Python scalars and lists take the type's dtype.
  else:
    value = tf.convert_to_tensor(value)
  if value.dtype != dtype:
    raise TypeError(f'expected a tensor of type {type_spec}, found dtype {value.dtype.name}')
  if not tensor_shape(type_spec).is_compatible_with(value.shape):
    raise TypeError(f'expected a tensor of type {type_spec}, found shape {value.shape}')
  return value


def tensor_shape(type_spec: tff.types.TensorType) -> tf.TensorShape:
  """The static shape of a tensor type."""
  return tf.TensorShape(type_spec.shape)


def dataset_variant(value: Any, element_type: tff.types.Type) -> tf.Tensor:
  """The variant tensor of a `tf.data.Dataset` or of a list of elements."""
  if not isinstance(value, tf.data.Dataset):
    value = _dataset_from_elements(value, element_type)
  types = leaf_types(element_type)
  flat_specs = [
    tf.TensorSpec(tensor_shape(types[i]), tf.dtypes.as_dtype(types[i].dtype))
    for i in dataset_order(element_type)
  ]
  found = tf.nest.flatten(value.element_spec)
  fits = len(found) == len(flat_specs) and all(
    w.dtype == f.dtype and w.shape.is_compatible_with(f.shape) for w, f in zip(flat_specs, found)
  )
  if not fits:
    raise TypeError(f'expected a sequence of {element_type}, found {value.element_spec}')
  return tf.data.experimental.to_variant(value)


def _dataset_from_elements(elements, element_type):
  types = leaf_types(element_type)
  order = dataset_order(element_type)
  rows = []
  for e in elements:
    row = [to_tensor(leaf, t) for leaf, t in zip(flatten(e, element_type), types)]
    rows.append(tuple(row[i] for i in order))
  signature = tuple(
    tf.TensorSpec(tensor_shape(types[i]), tf.dtypes.as_dtype(types[i].dtype)) for i in order
  )
  dataset = None
  for row in rows:
    one = tf.data.Dataset.from_tensors(row)
    dataset = one if dataset is None else dataset.concatenate(one)
  if dataset is None:
    empty = tuple(tf.zeros([d or 0 for d in s.shape], s.dtype) for s in signature)
    dataset = tf.data.Dataset.from_tensors(empty).take(0)
  return dataset


class ClientValues(collections.abc.Sequence):
  """Client-placed results, one an entry, kept as tensors stacked over the cohort.

  It behaves as the list that TFF returns; handed back to the engine it is used as it is, with no
  copying.
  """

  def __init__(
    self, flat: list[tf.Tensor], type_spec: tff.types.Type, length: int, unbox: Callable
  ):
    self.flat = flat
    self.type_spec = type_spec
    self._length = length
    self._unbox = unbox

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, index):
    if isinstance(index, slice):
      return [self[i] for i in range(*index.indices(self._length))]
    if not -self._length <= index < self._length:
      raise IndexError(f'client {index} of {self._length}')
    leaves = [
      self._unbox(stacked[index], t) for stacked, t in zip(self.flat, leaf_types(self.type_spec))
    ]
    return to_python(leaves, self.type_spec)
