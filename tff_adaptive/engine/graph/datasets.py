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
_PURE = (
  'BatchDataset',
  'ConcatenateDataset',
  'FilterDataset',
  'FlatMapDataset',
  'InterleaveDataset',
  'MapDataset',
  'OptionsDataset',
  'PaddedBatchDataset',
  'ParallelBatchDataset',
  'ParallelMapDataset',
  'PrefetchDataset',
  'RangeDataset',
  'RepeatDataset',
  'ScanDataset',
  'ShardDataset',
  'SkipDataset',
  'TakeDataset',
  'TakeWhileDataset',
  'TensorDataset',
  'TensorSliceDataset',
  'UnbatchDataset',
  'WindowDataset',
  'ZipDataset',
)
_REPEATABLE = frozenset([*_PURE, *(f'{name}V2' for name in _PURE)])
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
    entries = list(self._entries.values())  # Copied, because datasets may be freed at any time.
    room = self._max_bytes - sum(max(num_bytes, 0) for _, num_bytes in entries)
    if is_new or size < 0 or room <= 0:
      return variant
    rows = None
    if _repeats(variant):
      rows = _read(variant, dataset, room)
    if rows is None:
      self._entries[dataset] = None, -1
      return variant
    cached = tf.data.experimental.to_variant(from_rows(rows))
    self._entries[dataset] = cached, _num_bytes(rows)
    return cached


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
    joined = [a.concatenate(b) for a, b in pairs]
    if len(pieces) % 2 == 1:
      joined.append(pieces[-1])
    pieces = joined
  return pieces[0]


def _runs(rows: list[list[tf.Tensor]]) -> Any:
  """Groups neighbouring elements of equal shapes, like `itertools.groupby`."""
  return itertools.groupby(rows, key=lambda row: [v.shape.as_list() for v in row])


def _num_bytes(rows: list[list[tf.Tensor]]) -> int:
  tensors = itertools.chain.from_iterable(rows)
  return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tensors)


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
      # The size of a string tensor is not known from its shape.
      if is_full or any(v.dtype == tf.string for v in rows[-1]):
        return None
  except tf.errors.OpError:  # The computation may not read the element that fails.
    return None
  num_runs = sum(1 for _ in _runs(rows))
  if not rows or num_runs > _MAX_RUNS:
    return None
  return rows


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
    # With a name it is a file, which an earlier process may have left.
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
  given = tree.flatten_with_path(value.element_spec)
  fits = len(given) == len(wanted) and all(
    wanted_path == path and isinstance(spec, tf.TensorSpec) and wanted_spec.is_compatible_with(spec)
    for (wanted_path, wanted_spec), (path, spec) in zip(wanted, given)
  )
  if not fits:
    raise TypeError(f'expected a sequence of {element_type}, found {value.element_spec}')
  if cache is None:
    return _begun_anew(value)
  cached = cache.find(value)
  if cached is not None:
    return cached
  return cache.offer(value, _begun_anew(value))


def _begun_anew(dataset: tf.data.Dataset) -> tf.Tensor:
  """Returns a variant whose random numbers begin anew, as after TFF has serialized a dataset.

  The generators of a dataset's own variant continue from one reading to the next. A second round
  would then see another order, and a resumed run would differ from one that was not stopped.
  """
  continuing = tf.data.experimental.to_variant(dataset)
  if not private_apis.may_draw(dataset):
    return continuing
  try:
    graph_def = graph_of(continuing)
  except tf.errors.OpError:  # It cannot be serialized, perhaps because it is too large.
    return continuing
  generators = private_apis.seed_generators(graph_def)
  if not generators:
    return continuing
  for handle in generators:
    handle.name = ''  # Without the name, the copy cannot find the old generator.
  return tf.raw_ops.DatasetFromGraph(graph_def=graph_def.SerializeToString())


def _from_elements(elements: Iterable[Any], element_type: tff.types.Type) -> tf.data.Dataset:
  types = values.leaf_types(element_type)
  order = values.dataset_order(element_type)
  rows = []
  for element in elements:
    leaves = values.flatten(element, element_type)
    tensors = [values.to_tensor(leaf, t) for leaf, t in zip(leaves, types)]
    rows.append([tensors[i] for i in order])
  if rows:
    return from_rows(rows)
  # A dataset gets its element spec from an element, which is then not taken.
  zeros = []
  for i in order:
    shape = [length or 0 for length in types[i].shape]
    zeros.append(tf.zeros(shape, types[i].dtype))
  return tf.data.Dataset.from_tensors(tuple(zeros)).take(0)
