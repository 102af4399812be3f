"""Sequences given as datasets or lists of elements, as dataset variants."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_adaptive._utils import private_apis
from tff_adaptive.engine.graph import dataset_cache, values


def variant(
  value: Any, element_type: tff.types.Type, cache: dataset_cache.DatasetCache | None = None
) -> tf.Tensor:
  """The variant tensor of a `tf.data.Dataset` or of a list of elements."""
  if isinstance(value, (list, tuple)):
    return tf.data.experimental.to_variant(_from_elements(value, element_type))
  if not isinstance(value, tf.data.Dataset):
    raise TypeError(
      f'expected a list or tf.data.Dataset of {element_type}, found {type(value).__name__}'
    )
  wanted = tree.flatten_with_path(values.element_spec(element_type))
  found = tree.flatten_with_path(value.element_spec)
  fits = len(found) == len(wanted) and all(
    w_path == f_path and isinstance(f, tf.TensorSpec) and w.is_compatible_with(f)
    for (w_path, w), (f_path, f) in zip(wanted, found)
  )
  if not fits:
    raise TypeError(f'expected a sequence of {element_type}, found {value.element_spec}')
  if cache is not None and (held := cache.find(value)) is not None:
    return held
  fresh = _begun_anew(value)
  return fresh if cache is None else cache.offer(value, fresh)


def _begun_anew(dataset: tf.data.Dataset) -> tf.Tensor:
  """The variant of a dataset whose random numbers begin anew, as where TFF has serialized it.

  A dataset's own variant has generators of random numbers that go on from one reading to the next:
  a second round would see another order, and a resumed run another than one that was not stopped.
  """
  own = tf.data.experimental.to_variant(dataset)
  if not private_apis.may_draw(dataset):
    return own
  try:
    graph_def = dataset_cache.graph_of(own)
  except tf.errors.OpError:  # It cannot be written down: too large, say.
    return own
  generators = private_apis.seed_generators(graph_def)
  if not generators:
    return own
  for handle in generators:
    handle.name = ''  # By which no old generator is found.
  return tf.raw_ops.DatasetFromGraph(graph_def=graph_def.SerializeToString())


def _from_elements(elements: Iterable[Any], element_type: tff.types.Type) -> tf.data.Dataset:
  types = values.leaf_types(element_type)
  order = values.dataset_order(element_type)
  rows = [
    [values.to_tensor(v, t) for v, t in zip(values.flatten(e, element_type), types)]
    for e in elements
  ]
  if rows:
    return dataset_cache.from_rows([[row[i] for i in order] for row in rows])
  empty = tuple(tf.zeros([d or 0 for d in types[i].shape], types[i].dtype) for i in order)
  return tf.data.Dataset.from_tensors(empty).take(0)
