"""Converts sequences to dataset variants; keeps the elements of datasets that are used repeatedly.

A tf.data pipeline (shuffle, batch, map) takes several times as long as a small model's local steps.
TFF serializes a dataset for each call, so its shuffles begin anew in each call. If all its random
numbers have fixed seeds, it gives the same elements each time. When such a dataset is an argument
for the second time, its elements are read once and kept as tensors as long as the dataset lives.
"""

import itertools
import weakref
from collections.abc import Iterable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_adaptive._utils import private_apis
from tff_adaptive.engine.graph import values

MAX_BYTES = 256 * 2**20  # The most that a cache keeps.
_MAX_ELEMENTS = 2**16  # The most in a dataset, which may be endless. Reading them takes 3 s.
_MAX_RUNS = 64  # The most runs of elements of equal shapes; each run is kept as a dataset.

# Datasets whose elements depend on their inputs and functions only. A file, say, may change.
_REPEATABLE = frozenset(
  f'{name}Dataset{version}'
  for name in (
    *('Batch', 'Concatenate', 'Filter', 'FlatMap', 'Interleave', 'Map'),
    *('Options', 'PaddedBatch', 'ParallelBatch', 'ParallelMap', 'Prefetch', 'Range'),
    *('Repeat', 'Scan', 'Shard', 'Skip', 'Take', 'TakeWhile', 'Tensor', 'TensorSlice', 'Unbatch'),
    *('Window', 'Zip'),
  )
  for version in ('', 'V2')
)
_SHUFFLES = ('ShuffleDataset', 'ShuffleDatasetV3')
# Declared stateful, but harmless: a graph's inputs and outputs, and calls of checked functions.
_HARMLESS = ('StatefulPartitionedCall', '_Arg', '_Retval')
_OF_FILES = ('ReadFile', 'MatchingFiles', 'ImmutableConst')  # Declared stateless.


class DatasetCache:
  """A cache of the elements of datasets that were offered twice, of at most `max_bytes` in all."""

  def __init__(self, max_bytes: int = MAX_BYTES):
    self._max_bytes = max_bytes
    # By dataset: the variant of the kept elements or None; their bytes, or -1 if none can be kept.
    self._entries: Any = weakref.WeakKeyDictionary()

  def find(self, dataset: tf.data.Dataset) -> tf.Tensor | None:
    """Returns the variant of a dataset's elements if they are kept, else None."""
    return self._entries.get(dataset, (None, 0))[0]

  def offer(self, dataset: tf.data.Dataset, variant: tf.Tensor) -> tf.Tensor:
    """Keeps a dataset's elements at the second offer. Returns their variant, else `variant`."""
    is_new = dataset not in self._entries
    _, size = self._entries.setdefault(dataset, (None, 0))
    room = self._max_bytes - sum(max(size, 0) for _, size in list(self._entries.values()))
    if is_new or size < 0 or room <= 0:
      return variant
    rows = _read(variant, dataset, room) if _repeats(variant) else None
    if rows is None:
      self._entries[dataset] = None, -1
      return variant
    held = tf.data.experimental.to_variant(from_rows(rows))
    self._entries[dataset] = held, _num_bytes(rows)
    return held


def graph_of(variant: tf.Tensor) -> tf.compat.v1.GraphDef:
  """Returns the graph of a dataset, given its variant."""
  graph = tf.raw_ops.DatasetToGraphV2(input_dataset=variant).numpy()
  return tf.compat.v1.GraphDef.FromString(graph)


def from_rows(rows: list[list[tf.Tensor]]) -> tf.data.Dataset:
  """Returns the dataset whose elements have the tensors in `rows`, which must not be empty."""
  runs = (tuple(map(tf.stack, zip(*run))) for _, run in _runs(rows))
  pieces = [tf.data.Dataset.from_tensor_slices(run) for run in runs]
  while len(pieces) > 1:  # In pairs: a chain of thousands would be slow, and too deep to read.
    pairs = zip(pieces[::2], pieces[1::2])
    pieces = [a.concatenate(b) for a, b in pairs] + pieces[len(pieces) & ~1 :]
  return pieces[0]


def _runs(rows: list[list[tf.Tensor]]) -> Any:
  """Groups neighbouring elements of equal shapes, like `itertools.groupby`."""
  return itertools.groupby(rows, key=lambda row: [v.shape.as_list() for v in row])


def _num_bytes(rows: list[list[tf.Tensor]]) -> int:
  return sum(v.shape.num_elements() * v.dtype.size for row in rows for v in row)


def _read(variant: tf.Tensor, dataset: tf.data.Dataset, room: int) -> list[list[tf.Tensor]] | None:
  """Returns the tensors of each element of a dataset, or None if they cannot be kept."""
  elements = tf.data.experimental.from_variant(variant, dataset.element_spec)
  if elements.cardinality() == tf.data.INFINITE_CARDINALITY:
    return None
  rows: list[list[tf.Tensor]] = []
  try:
    for element in elements:
      rows.append(tf.nest.flatten(element))
      room -= _num_bytes(rows[-1:])
      is_full = room < 0 or len(rows) > _MAX_ELEMENTS
      if is_full or any(v.dtype == tf.string for v in rows[-1]):
        return None
  except tf.errors.OpError:  # The computation may not read the element that fails.
    return None
  return rows if rows and sum(1 for _ in _runs(rows)) <= _MAX_RUNS else None


def _repeats(variant: tf.Tensor) -> bool:
  """Returns whether all copies of a dataset give the same elements when they are first read."""
  try:
    graph = graph_of(variant)
  except tf.errors.OpError:  # A part of it, such as a table, cannot be serialized.
    return False
  constants = {node.name: node for node in graph.node if node.op == 'Const'}
  return all(_node_repeats(node, constants) for node in private_apis.all_nodes(graph))


def _node_repeats(node: Any, constants: dict[str, Any]) -> bool:
  if node.op in _SHUFFLES:
    seeds = [constants.get(name) for name in node.input[2:4]]
    # If both are zero, TensorFlow draws the seed.
    return None not in seeds and any(
      tf.make_ndarray(seed.attr['value'].tensor).any() for seed in seeds if seed
    )
  if node.op.startswith('CacheDataset'):
    name = constants.get(node.input[1])
    return name is not None and not tf.make_ndarray(name.attr['value'].tensor).item()
  if 'Dataset' in node.op:
    return node.op in _REPEATABLE
  if node.op in _OF_FILES:
    return False
  return node.op in _HARMLESS or not private_apis.is_stateful(node.op)


def variant(
  value: Any, element_type: tff.types.Type, cache: DatasetCache | None = None
) -> tf.Tensor:
  """Returns the variant of a dataset or list. Raises TypeError for other values or elements."""
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
  """Returns a variant whose random numbers begin anew, as after TFF has serialized a dataset.

  The generators of a dataset's own variant continue from one reading to the next. A second round
  would then see another order, and a resumed run would differ from one that was not stopped.
  """
  own = tf.data.experimental.to_variant(dataset)
  if not private_apis.may_draw(dataset):
    return own
  try:
    graph_def = graph_of(own)
  except tf.errors.OpError:  # It cannot be serialized, perhaps because it is too large.
    return own
  generators = private_apis.seed_generators(graph_def)
  if not generators:
    return own
  for handle in generators:
    handle.name = ''  # Without the name, the copy cannot find the old generator.
  return tf.raw_ops.DatasetFromGraph(graph_def=graph_def.SerializeToString())


def _from_elements(elements: Iterable[Any], element_type: tff.types.Type) -> tf.data.Dataset:
  types = values.leaf_types(element_type)
  order = values.dataset_order(element_type)
  rows = [
    [values.to_tensor(v, t) for v, t in zip(values.flatten(e, element_type), types)]
    for e in elements
  ]
  if rows:
    return from_rows([[row[i] for i in order] for row in rows])
  empty = tuple(tf.zeros([d or 0 for d in types[i].shape], types[i].dtype) for i in order)
  return tf.data.Dataset.from_tensors(empty).take(0)
