"""Converts the arguments of a computation to flat tensors for one TensorFlow function.

Client-placed leaves are fed for the whole cohort of K clients at once, so that neither the number
of clients nor their sizes cause a new trace:

- `stack`: tensors of one known shape, as [K, ...];
- `concat`: tensors of unknown length, as one array and the K + 1 offsets of the clients in it;
- `boxed`: any other tensor, as a [K] vector of one-element datasets;
- `dataset`: sequences given as datasets, as a [K] vector of variants;
- `whole`: sequences given as lists of one element; each tensor of the element is fed as above.
"""

import asyncio
import concurrent.futures
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.devices import placement
from tff_adaptive.engine.graph import (
  buffers as buffers_lib,
  datasets,
  nodes as nodes_lib,
  stacking,
  values,
)

# The name of a client-placed element of a computation's parameter, if the cohort is a part of a
# larger one: the clients' places in that.
POSITIONS = 'tff_adaptive_positions'


@dataclasses.dataclass(frozen=True)
class Leaf:
  """One leaf of a computation's parameter: its type, and the form in which it is fed."""

  type: tff.types.Type
  form: str  # See the module; 'tensor' or 'variant' if it is not at the clients.
  elements: tuple['Leaf', ...] = ()  # The leaves of a 'whole' sequence's element.

  def specs(self) -> list[tf.TensorSpec]:
    """Returns the specs of the flat tensors that feed the leaf."""
    if self.form == 'whole':
      return _specs(self.elements)
    if self.form == 'variant':
      return [tf.TensorSpec([], tf.variant)]
    if self.form in ('dataset', 'boxed'):
      return [tf.TensorSpec([None], tf.variant)]
    shape = values.tensor_shape(self.type)
    dtype = tf.dtypes.as_dtype(self.type.dtype)
    if self.form == 'tensor':
      return [tf.TensorSpec(shape, dtype)]
    if self.form == 'stack':
      return [tf.TensorSpec([None, *shape], dtype)]
    return [tf.TensorSpec([None, *shape[1:]], dtype), tf.TensorSpec([None], tf.int64)]

  def share(self, flat: list[tf.Tensor], clients: tf.Tensor | None) -> list[tf.Tensor]:
    """Returns the leaf's tensors for some clients (None for all), on the current device.

    The leaf's tensors for all clients are removed from the front of `flat`. The returned tensors
    also match `specs`. Datasets and offsets stay on the host.
    """
    if self.form == 'whole':
      return _shares(self.elements, flat, clients)
    first = flat.pop(0)
    offsets = None
    if self.form == 'concat':
      offsets = flat.pop(0)
    if clients is not None:
      # The host selects, so that a device gets the data of its own clients only.
      with tf.device(placement.HOST):
        if offsets is None:
          first = tf.gather(first, clients)
        else:
          starts = tf.gather(offsets, clients)
          stops = tf.gather(offsets, clients + 1)
          first = tf.gather(first, tf.ragged.range(starts, stops).flat_values)
          offsets = tf.concat([[0], tf.cumsum(stops - starts)], 0)
    if not placement.stays_on_host(first):
      first = tf.identity(first)
    if offsets is None:
      return [first]
    return [first, offsets]

  def read(self, flat: list[tf.Tensor], i: tf.Tensor, host: str | None = None) -> Any:
    """Returns the value of client `i`; removes the leaf's tensors from the front of `flat`."""
    if self.form == 'whole':
      return values.Sequence(element=[leaf.read(flat, i, host) for leaf in self.elements])
    first = flat.pop(0)
    if self.form == 'stack':
      return first[i]
    with placement.on(host):
      if self.form == 'dataset':
        return values.Sequence(variant=first[i])
      if self.form == 'boxed':
        return stacking.unbox(first[i], self.type)
      offsets = flat.pop(0)
      start = offsets[i]
      stop = offsets[i + 1]
    return tf.ensure_shape(first[start:stop], values.tensor_shape(self.type))


def _specs(leaves: Sequence[Leaf]) -> list[tf.TensorSpec]:
  """Returns the specs of the flat tensors that feed some leaves."""
  specs: list[tf.TensorSpec] = []
  for leaf in leaves:
    specs.extend(leaf.specs())
  return specs


def _shares(
  leaves: Sequence[Leaf], flat: list[tf.Tensor], clients: tf.Tensor | None
) -> list[tf.Tensor]:
  """Returns the tensors of some leaves for some clients; see `Leaf.share`."""
  tensors: list[tf.Tensor] = []
  for leaf in leaves:
    tensors.extend(leaf.share(flat, clients))
  return tensors


def _whole_leaf(type_spec: tff.types.TensorType) -> Leaf:
  shape = values.tensor_shape(type_spec)
  # The cheapest form to read that the shape allows.
  if shape.is_fully_defined():
    return Leaf(type_spec, 'stack')
  if shape.rank and shape[0] is None and shape[1:].is_fully_defined():
    return Leaf(type_spec, 'concat')
  return Leaf(type_spec, 'boxed')


@dataclasses.dataclass(frozen=True)
class Layout:
  """How the parameter of a computation is fed, leaf by leaf. Each layout needs a trace of its own.

  Attributes:
    parameter_type: The type of the parameter; None if the computation has none.
    leaves: The leaves of the parameter, in order.
    has_clients: Whether a part of the parameter has a value for each client.
  """

  parameter_type: Any
  leaves: tuple[Leaf, ...]
  has_clients: bool

  def signature(self) -> list[tf.TensorSpec]:
    """Returns the specs of a trace's arguments. If there are clients, their number comes first."""
    specs = _specs(self.leaves)
    if self.has_clients:
      specs.insert(0, tf.TensorSpec([], tf.int32))
    return specs

  def parameter_nodes(self, flat: Sequence[tf.Tensor]) -> tuple[Any, tf.Tensor | None]:
    """Returns the parameter, in which placed parts are nodes, and the number of clients or None."""
    feeds = list(flat)
    num_clients = None
    if self.has_clients:
      num_clients = feeds.pop(0)
    leaves = iter(self.leaves)

    def build(type_spec: tff.types.Type) -> Any:
      if isinstance(type_spec, tff.types.StructType):
        return tff.structure.Struct([(n, build(t)) for n, t in values.children(type_spec)])
      placement = getattr(type_spec, 'placement', None)
      member = type_spec
      if placement is not None:
        member = type_spec.member
      part = [next(leaves) for _ in values.leaf_types(member)]
      tensors = [feeds.pop(0) for _ in _specs(part)]
      compute: Callable[[Any], Any] = ClientParameter(part, tensors, member)
      if placement is None or type_spec.all_equal:
        value = values.pack(map(values.sequence_or_tensor, tensors), member)
        if placement is None:
          return value
        compute = lambda frame: value  # noqa: E731
      return nodes_lib.Node(placement, member, [], compute, 0, free=True)

    return build(self.parameter_type), num_clients


@dataclasses.dataclass(frozen=True, eq=False)
class ClientParameter:
  """A client-placed parameter, which the loop over the clients reads client by client.

  Attributes:
    leaves: The leaves of the parameter, in order.
    tensors: The flat tensors that feed the leaves.
    type: The type of one client's value.
    host: The device of datasets and offsets; None lets TensorFlow choose.
  """

  leaves: Sequence[Leaf]
  tensors: Sequence[tf.Tensor]
  type: tff.types.Type
  host: str | None = None

  def share(self, clients: tf.Tensor | None = None) -> 'ClientParameter':
    """Returns the parameter of some clients (None for all) on the current device."""
    flat = list(self.tensors)
    tensors = _shares(self.leaves, flat, clients)
    return ClientParameter(self.leaves, tensors, self.type, placement.HOST)

  def read(self, i: tf.Tensor) -> Any:
    """Returns the parameter of client `i`."""
    flat = list(self.tensors)
    return values.pack([leaf.read(flat, i, self.host) for leaf in self.leaves], self.type)

  def __call__(self, frame: Any) -> Any:
    raise AssertionError('a client parameter is read inside the loop over the clients')


def prepare(
  argument: Any,
  parameter_type: Any,
  buffers: buffers_lib.Buffers | None = None,
  cache: datasets.DatasetCache | None = None,
) -> tuple[Layout, list[tf.Tensor]]:
  """Returns the layout of an argument, and its tensors in the order of `Layout.signature`."""
  cohort = _Feed(buffers or buffers_lib.Buffers(), cache)
  cohort.visit(argument, parameter_type)
  lengths = cohort.lengths
  if len(set(lengths)) > 1:
    raise ValueError(f'Conflicting cardinalities: arguments are for {lengths} clients')
  layout = Layout(parameter_type, tuple(cohort.leaves), bool(lengths))
  tensors = cohort.tensors
  if lengths:
    tensors = [tf.constant(lengths[0], tf.int32), *tensors]
  return layout, tensors


class _Executor:
  """A stand-in for TFF's executor, which returns the value that it gets from an `Ingestable`."""

  async def create_value(self, value: Any, type_spec: Any = None) -> Any:
    del type_spec  # The value is checked later, by the parameter's type.
    return value


def ingested(value: Any) -> Any:
  """Returns the value of a `tff.framework.Ingestable`; returns other values unchanged."""
  if not isinstance(value, tff.framework.Ingestable):
    return value
  with concurrent.futures.ThreadPoolExecutor(1) as pool:  # This thread may run an event loop.
    return pool.submit(asyncio.run, value.ingest(_Executor())).result()


class _Feed:
  """Collects an argument's leaves and tensors. A recursive closure would keep the tensors alive."""

  def __init__(self, buffers: buffers_lib.Buffers, cache: datasets.DatasetCache | None):
    self.leaves: list[Leaf] = []
    self.tensors: list[tf.Tensor] = []
    self.lengths: list[int] = []
    self._buffers = buffers
    self._cache = cache

  def visit(self, value: Any, type_spec: tff.types.Type) -> None:
    """Adds the leaves and tensors of a value."""
    value = ingested(value)
    if isinstance(type_spec, tff.types.StructType):
      elements = values.struct_elements(value, type_spec)
      for element, (_, child) in zip(elements, values.children(type_spec)):
        self.visit(element, child)
    elif isinstance(type_spec, tff.types.FederatedType) and not type_spec.all_equal:
      if not isinstance(value, (list, tuple)):
        raise TypeError(
          f'expected a list with one {type_spec.member} a client, found {type(value).__name__}'
        )
      self.lengths.append(len(value))
      self._visit_clients(value, type_spec.member)
    elif isinstance(type_spec, tff.types.FederatedType):
      self.visit(value, type_spec.member)
    elif isinstance(type_spec, tff.types.SequenceType):
      self.leaves.append(Leaf(type_spec, 'variant'))
      self.tensors.append(datasets.variant(value, type_spec.element, self._cache))
    else:
      self.leaves.append(Leaf(type_spec, 'tensor'))
      self.tensors.append(values.to_tensor(value, type_spec))

  def _visit_clients(self, cohort: Any, member: tff.types.Type) -> None:
    """Adds the leaves and tensors of a client-placed argument, which is a list."""
    rows = [values.flatten(value, member) for value in cohort]
    for column, leaf_type in enumerate(values.leaf_types(member)):
      entries = [row[column] for row in rows]
      if not isinstance(leaf_type, tff.types.SequenceType):
        leaf = _whole_leaf(leaf_type)
        self.leaves.append(leaf)
        self.tensors.extend(_feed_tensors(entries, leaf, self._buffers))
      # A client's arrays as one element need no tf.data.
      elif all(isinstance(e, (list, tuple)) and len(e) == 1 for e in entries):
        self._visit_elements([e[0] for e in entries], leaf_type)
      else:
        variants = [datasets.variant(e, leaf_type.element, self._cache) for e in entries]
        self.leaves.append(Leaf(leaf_type, 'dataset'))
        self.tensors.append(_stack(variants))

  def _visit_elements(self, elements: list[Any], type_spec: tff.types.SequenceType) -> None:
    """Adds the leaf and tensors of sequences of which each client has a single element."""
    rows = [values.flatten(element, type_spec.element) for element in elements]
    types = values.leaf_types(type_spec.element)
    # In the order in which a graph that expects a dataset reads its components.
    order = values.dataset_order(type_spec.element)
    leaves = tuple(_whole_leaf(types[j]) for j in order)
    self.leaves.append(Leaf(type_spec, 'whole', leaves))
    for j, leaf in zip(order, leaves):
      self.tensors.extend(_feed_tensors([row[j] for row in rows], leaf, self._buffers))


def _stack(variants: list[tf.Tensor]) -> tf.Tensor:
  if not variants:  # tf.stack needs at least one.
    return tf.zeros([0], tf.variant)
  return tf.stack(variants)


def _feed_tensors(entries: list[Any], leaf: Leaf, buffers: buffers_lib.Buffers) -> list[tf.Tensor]:
  """Returns tensors that match `leaf.specs()`, given each client's value of the leaf."""
  if leaf.form == 'boxed':
    boxes = [stacking.box(values.to_tensor(e, leaf.type), leaf.type) for e in entries]
    return [_stack(boxes)]
  if not entries:
    return _no_entries(leaf)
  are_arrays = _are_arrays(entries, leaf)
  if not are_arrays:
    entries = [values.to_tensor(e, leaf.type) for e in entries]
  if leaf.form == 'stack':
    if are_arrays:
      return [buffers.join([e[np.newaxis] for e in entries])]
    return [tf.stack(entries)]
  offsets = np.cumsum([0] + [int(e.shape[0]) for e in entries])
  # NumPy joins arrays into a buffer that is used again, which saves an allocation a round.
  if are_arrays:
    return [buffers.join(entries), _on_host(offsets)]
  return [tf.concat(entries, 0), _on_host(offsets)]


def _no_entries(leaf: Leaf) -> list[tf.Tensor]:
  """Returns the tensors of a leaf for a cohort without clients."""
  dtype = tf.dtypes.as_dtype(leaf.type.dtype)
  shape = values.tensor_shape(leaf.type)
  if leaf.form == 'stack':
    return [tf.zeros([0, *shape], dtype)]
  return [tf.zeros([0, *shape[1:]], dtype), _on_host([0])]


def _are_arrays(entries: list[Any], leaf: Leaf) -> bool:
  """Returns whether all entries are arrays of the leaf's type, which can be joined as they are."""
  if tf.dtypes.as_dtype(leaf.type.dtype) == tf.string:
    return False
  if not all(isinstance(e, (np.ndarray, np.generic)) for e in entries):
    return False
  shape = values.tensor_shape(leaf.type)
  forms = {(e.dtype, e.shape) for e in entries}  # Many clients have few different shapes.
  return all(
    entry_dtype == leaf.type.dtype and shape.is_compatible_with(entry_shape)
    for entry_dtype, entry_shape in forms
  )


def _on_host(offsets: Any) -> tf.Tensor:
  with tf.device(placement.HOST):
    return tf.constant(offsets, tf.int64)
