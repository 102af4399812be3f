"""Converts values of TFF types to flat lists of tensors, and back."""

import functools
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import value_text

# The id of a (read-only) array that shares a tensor's memory -> the tensor, and the array. So the
# result of a round becomes an argument of the next round without a copy.
_shared: dict[int, tuple[tf.Tensor, 'weakref.ref[np.ndarray]']] = {}


class Sequence:
  """A value of a `tff.SequenceType` in a graph: a dataset variant, or the tensors of one element.

  The form that is missing is made at each use, because uses may be in different graphs.
  """

  def __init__(self, *, variant: tf.Tensor | None = None, element: list | None = None):
    self._variant = variant
    self._element = element or []

  def variant(self) -> tf.Tensor:
    """Returns the dataset as a scalar variant tensor."""
    if self._variant is not None:
      return self._variant
    return tf.raw_ops.TensorDataset(
      components=self._element, output_shapes=[t.shape for t in self._element]
    )

  def whole(self, dtypes: list[tf.DType], shapes: list[tf.TensorShape]) -> list[tf.Tensor]:
    """Returns the only element's tensors. Running the graph fails if there is not one element."""
    if self._variant is None:
      return self._element
    return tf.raw_ops.DatasetToSingleElement(
      dataset=self._variant, output_types=dtypes, output_shapes=shapes
    )


def children(type_spec: tff.types.StructType) -> list[tuple[str | None, tff.types.Type]]:
  """Returns the names and types of the elements of a struct type."""
  return list(tff.structure.iter_elements(type_spec))


def variant_or_tensor(leaf: Any) -> Any:
  """Returns a `Sequence` as a variant tensor, and a tensor unchanged."""
  if isinstance(leaf, Sequence):
    return leaf.variant()
  return leaf


def sequence_or_tensor(tensor: tf.Tensor) -> Any:
  """Returns a variant tensor as a `Sequence`, and any other tensor unchanged."""
  if tensor.dtype == tf.variant:
    return Sequence(variant=tensor)
  return tensor


def leaf_types(type_spec: tff.types.Type) -> list[tff.types.Type]:
  """Returns the tensor and sequence types inside an unplaced type, in the type's order."""
  if isinstance(type_spec, tff.types.StructType):
    leaves = []
    for _, child in children(type_spec):
      leaves.extend(leaf_types(child))
    return leaves
  return [type_spec]


@functools.lru_cache(maxsize=1024)
def dataset_order(element_type: tff.types.Type) -> tuple[int, ...]:
  """Returns the index in `leaf_types` of each dataset component; tf.data sorts these by key."""
  count = len(leaf_types(element_type))
  return tuple(int(i) for i in tf.nest.flatten(to_python(list(range(count)), element_type)))


def struct_elements(value: Any, type_spec: tff.types.StructType) -> list[Any]:
  """Returns a container's elements in the type's order. Raises TypeError if they do not fit."""
  wanted = children(type_spec)
  if isinstance(value, Mapping):
    names = list(value)
    elements = list(value.values())
  elif isinstance(value, tff.structure.Struct):
    pairs = list(tff.structure.iter_elements(value))
    names = [name for name, _ in pairs]
    elements = [element for _, element in pairs]
  elif attrs.has(type(value)):
    names = [field.name for field in attrs.fields(type(value))]
    elements = [getattr(value, name) for name in names]
  elif isinstance(value, (list, tuple)):
    names = list(getattr(value, '_fields', []))  # A named tuple has them.
    elements = list(value)
  else:
    raise TypeError(f'expected a structure of type {type_spec}, found {type(value).__name__}')
  by_name = dict(zip(names, elements))
  wanted_names = [name for name, _ in wanted]
  if by_name and None not in by_name and None not in wanted_names:
    if set(wanted_names) != set(by_name):
      raise TypeError(f'expected fields {wanted_names} (type {type_spec}), found {names}')
    return [by_name[name] for name in wanted_names]
  if len(elements) != len(wanted):
    raise TypeError(f'expected {len(wanted)} elements (type {type_spec}), found {len(elements)}')
  return elements


def flatten(value: Any, type_spec: tff.types.Type) -> list[Any]:
  """Returns the leaves of an unplaced value in the order of `leaf_types`."""
  if not isinstance(type_spec, tff.types.StructType):
    return [value]
  flat = []
  for element, (_, child) in zip(struct_elements(value, type_spec), children(type_spec)):
    flat.extend(flatten(element, child))
  return flat


def pack(flat: Iterable[Any], type_spec: tff.types.Type) -> Any:
  """Inverts `flatten`: returns the value with these leaves, as nested `tff.structure.Struct`s."""
  leaves = iter(flat)  # An iterator stays the same one, so recursive calls share it.
  if isinstance(type_spec, tff.types.StructType):
    return tff.structure.Struct([(n, pack(leaves, child)) for n, child in children(type_spec)])
  return next(leaves)


def to_python(flat: list[Any], type_spec: tff.types.Type) -> Any:
  """Inverts `flatten` as `pack` does, but with the Python containers that the type names."""
  return tff.types.type_to_py_container(pack(flat, type_spec), type_spec)


def to_containers(value: Any, type_spec: tff.types.Type) -> Any:
  """Converts a value inside a graph to Python containers; a sequence becomes its only element."""
  leaves = []
  for leaf, leaf_type in zip(flatten(value, type_spec), leaf_types(type_spec)):
    if isinstance(leaf, Sequence):
      order = dataset_order(leaf_type.element)
      types = leaf_types(leaf_type.element)
      dtypes = [tf.dtypes.as_dtype(types[i].dtype) for i in order]
      shapes = [tensor_shape(types[i]) for i in order]
      tensors = leaf.whole(dtypes, shapes)
      flat = [tensor for _, tensor in sorted(zip(order, tensors), key=lambda pair: pair[0])]
      leaf = to_python(flat, leaf_type.element)
    leaves.append(leaf)
  return to_python(leaves, type_spec)


def to_tensor(value: Any, type_spec: tff.types.TensorType) -> tf.Tensor:
  """Converts a value to a tensor of the type. Raises TypeError if the value does not fit."""
  dtype = tf.dtypes.as_dtype(type_spec.dtype)
  shared = _shared.get(id(value))
  if shared is not None:
    value, _ = shared
  if isinstance(value, tf.Tensor):
    pass  # The usual case, and the cheapest test.
  elif isinstance(value, (tf.RaggedTensor, tf.SparseTensor)):
    raise TypeError(f'expected a tensor of type {type_spec}, found {type(value).__name__}')
  elif isinstance(value, (np.ndarray, np.generic)) or tf.is_tensor(value):  # The slow test.
    value = tf.convert_to_tensor(value)
  else:
    value = _from_python(value, type_spec, dtype)
  if value.dtype != dtype and _is_narrower(value.dtype.as_numpy_dtype, dtype.as_numpy_dtype):
    value = tf.cast(value, dtype)
  if value.dtype != dtype:
    raise TypeError(f'expected a tensor of type {type_spec}, found dtype {value.dtype.name}')
  if not tensor_shape(type_spec).is_compatible_with(value.shape):
    raise TypeError(f'expected a tensor of type {type_spec}, found shape {value.shape}')
  return value


def _is_narrower(dtype: type[np.generic], other: type[np.generic]) -> bool:
  """Returns whether `other` has the kind and all numbers of `dtype`, so that TFF casts to it."""
  kinds = (np.integer, np.floating, np.complexfloating)
  of_one_kind = any(np.issubdtype(dtype, k) and np.issubdtype(other, k) for k in kinds)
  return of_one_kind and np.can_cast(dtype, other)


def to_numpy(value: Any) -> Any:
  """Converts a tensor to an array, `np.generic` or `bytes` like TFF. A dataset stays a dataset."""
  if not isinstance(value, tf.Tensor) or value.dtype == tf.variant:
    return value
  if not value.shape.rank or value.dtype in (tf.string, tf.bfloat16):
    return value.numpy()
  array = np.asarray(value)  # It shares the memory of a tensor that is not on a GPU.
  if isinstance(array, np.ndarray) and 'CPU' in value.backing_device:
    # The entry ends with the array, whose id another object may then get.
    key = id(array)
    _shared[key] = value, weakref.ref(array, lambda _: _shared.pop(key, None))
  return array


def _from_python(value: Any, type_spec: tff.types.TensorType, dtype: tf.DType) -> tf.Tensor:
  """Converts Python scalars, or lists of them, to a tensor of the type's dtype."""
  try:
    tensor = tf.convert_to_tensor(value, dtype)
    array = np.asarray(value)
    if array.dtype == np.bool_ and dtype != tf.bool:  # TFF does not take a bool for a number.
      raise ValueError
    if dtype.is_integer and np.any(array != tensor.numpy()):  # It has overflowed.
      raise ValueError
  except (TypeError, ValueError) as e:
    raise TypeError(
      f'expected a tensor of type {type_spec}, found {value_text.in_text(value):.80}'
      f' ({type(value).__name__})'
    ) from e
  return tensor


def tensor_spec(type_spec: tff.types.TensorType) -> tf.TensorSpec:
  """Returns the `tf.TensorSpec` of a tensor type."""
  return tf.TensorSpec(tensor_shape(type_spec), tf.dtypes.as_dtype(type_spec.dtype))


def element_spec(element_type: tff.types.Type) -> Any:
  """Returns the `tf.data.Dataset.element_spec` of datasets with elements of a type."""
  return to_python([tensor_spec(t) for t in leaf_types(element_type)], element_type)


@functools.lru_cache(maxsize=4096)
def tensor_shape(type_spec: tff.types.TensorType) -> tf.TensorShape:
  """Returns the static shape of a tensor type."""
  return tf.TensorShape(type_spec.shape)
