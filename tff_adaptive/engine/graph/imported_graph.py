"""Imports a serialized TensorFlow computation of TFF as a Python callable on tensors."""

import collections
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import graph_functions, private_apis
from tff_adaptive.engine import batched_clients
from tff_adaptive.engine.graph import loops, streams, values
from tff_adaptive.kernels import library, top_k

# A variable with this shared name is created anew each time its op runs and is freed with its last
# reference, so parallel clients each have their own. For tables, TensorFlow has separate ops.
_ANONYMOUS = private_apis.anonymous_name()
_ANONYMOUS_TABLES = {
  'HashTableV2': 'AnonymousHashTable',
  'MutableHashTableV2': 'AnonymousMutableHashTable',
  'MutableHashTableOfTensorsV2': 'AnonymousMutableHashTableOfTensors',
  'MutableDenseHashTableV2': 'AnonymousMutableDenseHashTable',
}
_RESOURCES = ('VarHandleOp', *_ANONYMOUS_TABLES.values())


class ImportedGraph:
  """The graph of a `tff.tensorflow.computation`, imported from its `TensorFlow` message once.

  Its arguments and results are flat lists of tensors in the order of `values.flatten`. The value of
  a `tff.SequenceType` is a `values.Sequence`.

  Args:
    message: The computation's `TensorFlow` message.
    with_streams: Whether it draws random numbers from the streams of a client; see `streams`.
  """

  def __init__(self, message: Any, with_streams: bool = False):
    graph_def = private_apis.graph_def(message)
    self._message = message
    self._lacks_streams = not with_streams and streams.has_seeds(graph_def)
    self._of_clients: ImportedGraph | None = None  # This graph with streams, made at the first use.
    self._streams: dict[str, tuple[int, int]] = {}
    if with_streams:
      self._streams = streams.pass_in(graph_def)
    top_k.substitute(graph_def)
    # TensorFlow imports a graph only if it knows all operations.
    library.load_for(node.op for node in private_apis.all_nodes(graph_def))
    graph_functions.name_apart(graph_def)
    loops.set_apart(graph_def)
    self.group = batched_clients.find(message)
    self._parameter = private_apis.tensor_names(message.parameter)
    whole_reads = _whole_reads(graph_def, self._parameter)
    self._whole_reads: dict[str, list[list[tf.TensorSpec]]] = {}  # See `_whole_reads`.
    loops.replace_reductions(graph_def)
    for node in private_apis.all_nodes(graph_def):
      _make_private(node)
    handles = []
    if initialize_op := private_apis.initialize_op(message):
      handles = _initialized_handles(graph_def, initialize_op)
    wrapped = tf.compat.v1.wrap_function(
      lambda: tf.graph_util.import_graph_def(graph_def, name=''), []
    )
    graph = wrapped.graph

    feeds: list[tf.Tensor] = []
    for name, _ in self._parameter:
      if name in whole_reads:
        self._whole_reads[name] = []
        for reader in whole_reads[name]:
          reads = [graph.get_tensor_by_name(read) for read in reader]
          self._whole_reads[name].append([tf.TensorSpec(read.shape, read.dtype) for read in reads])
          feeds.extend(reads)
      else:
        feeds.append(graph.get_tensor_by_name(name))
    feeds.extend(graph.get_tensor_by_name(f'{name}:0') for name in self._streams)
    fetches = [
      graph.get_tensor_by_name(name) for name, _ in private_apis.tensor_names(message.result)
    ]
    self._initialize = None
    if handles:
      ready = [graph.get_tensor_by_name(f'{name}/initialized:0') for name in handles]
      self._initialize = wrapped.prune(feeds, ready)  # Initial values may depend on arguments.
      feeds += [graph.get_tensor_by_name(f'{name}:0') for name in handles]
    self._main = _function(graph_def, wrapped, feeds, fetches)

  def __call__(self, arguments: list[Any]) -> list[Any]:
    """Runs the graph on flat arguments, and returns the flat results."""
    if self._lacks_streams and streams.client() is not None:
      if self._of_clients is None:
        self._of_clients = ImportedGraph(self._message, with_streams=True)
      return self._of_clients(arguments)
    flat = []
    for (name, is_sequence), argument in zip(self._parameter, arguments):
      if not is_sequence:
        flat.append(argument)
      elif name in self._whole_reads:
        for reads in self._whole_reads[name]:
          flat.extend(argument.whole([t.dtype for t in reads], [t.shape for t in reads]))
      else:
        flat.append(argument.variant())
    if self._streams:
      single = [a for a, (_, is_sequence) in zip(arguments, self._parameter) if not is_sequence]
      flat.extend(streams.opened(list(self._streams.values()), single))
    if self._initialize is not None:
      flat.extend(self._initialize(*flat))
    results = self._main(*flat)
    if not isinstance(results, (list, tuple)):  # A graph with one result returns it alone.
      results = [results]
    return [values.sequence_or_tensor(result) for result in results]


def _function(
  graph_def: Any, wrapped: Any, feeds: list[tf.Tensor], fetches: list[tf.Tensor]
) -> Any:
  """Returns a function from feeds to fetches that runs only what the fetches need.

  Args:
    graph_def: The graph.
    wrapped: The same, imported by `wrap_function`.
    feeds, fetches: Tensors of the imported graph.
  """
  # A resource says what it holds, and a dataset what its elements are, which an argument does not.
  if any(feed.dtype in (tf.resource, tf.variant) for feed in feeds):
    return wrapped.prune(feeds, fetches)
  # `prune` copies each operation in Python, which takes longer than all the rest of an import.
  names = [feed.name for feed in feeds]
  needed, read = _needed(graph_def, {*names}, [fetch.op.name for fetch in fetches])

  def run(*arguments: tf.Tensor) -> list[tf.Tensor]:
    given = {name: argument for name, argument in zip(names, arguments) if name in read}
    results: list[tf.Tensor] = tf.graph_util.import_graph_def(
      needed,
      input_map=given,
      return_elements=[fetch.name for fetch in fetches],
      name='',
    )
    return results

  return tf.compat.v1.wrap_function(run, [tf.TensorSpec(f.shape, f.dtype) for f in feeds])


def _needed(graph_def: Any, feeds: set[str], fetches: list[str]) -> tuple[Any, set[str]]:
  """Returns the part of a graph that the ops `fetches` need, and which feeds that part reads."""
  nodes = {node.name: node for node in graph_def.node}
  fed_ops = {name.partition(':')[0] for name in feeds}
  needed: set[str] = set()
  read: set[str] = {name for name in feeds if name.partition(':')[0] in fetches}
  ahead = [*fetches]
  while ahead:
    name = ahead.pop()
    if name in needed:
      continue
    needed.add(name)
    for source in nodes[name].input:
      op, _, output = source.lstrip('^').partition(':')
      tensor = f'{op}:{output or 0}'
      if source.startswith('^'):  # It waits for the op. What is fed is there at once.
        ahead.extend({op} - fed_ops)
      elif tensor in feeds:
        read.add(tensor)
      else:
        ahead.append(op)
  part = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
  part.node.extend(node for node in graph_def.node if node.name in needed)
  for node in part.node:
    # Nothing may name an op that is not here: not as what it waits for, nor as what it stands with.
    node.input[:] = [name for name in node.input if name[0] != '^' or name[1:] in needed]
    if '_class' in node.attr:
      places = node.attr['_class'].list
      places.s[:] = [name for name in places.s if name.decode().removeprefix('loc:@') in needed]
  return part, read


def _make_private(node: Any) -> None:
  """Changes an op that creates a variable or table so that each run creates a new one."""
  if node.op == 'VarHandleOp':
    node.attr['shared_name'].s = _ANONYMOUS.encode()
  elif node.op in _ANONYMOUS_TABLES:
    node.op = _ANONYMOUS_TABLES[node.op]
    # The anonymous ops lack these attributes, and TensorFlow refuses unknown ones.
    for name in ('container', 'shared_name', 'use_node_name_sharing'):
      node.attr.pop(name, None)


def _initialized_handles(graph_def: tf.compat.v1.GraphDef, initialize_op: str) -> list[str]:
  """Adds resource handles that wait for `initialize_op`; returns the original handles' names."""
  names = [node.name for node in graph_def.node if node.op in _RESOURCES]
  for name in names:
    ready = graph_def.node.add()
    ready.name = f'{name}/initialized'
    ready.op = 'Identity'
    ready.input.extend([name, f'^{initialize_op}'])  # ^: it waits for the op, but reads nothing.
    ready.attr['T'].type = tf.resource.as_datatype_enum
  return names


def _whole_reads(
  graph_def: tf.compat.v1.GraphDef, parameter: list[tuple[str, bool]]
) -> dict[str, list[list[str]]]:
  """Finds the sequences that the graph reads only as a single element, such as a client's data.

  Such a sequence does not have to pass through tf.data; its tensors are fed directly. Returns, by
  the sequence's name, a list for each op that reads it, with the names of the op's outputs.
  """
  readers = collections.defaultdict(list)
  for node in graph_def.node:
    for input_name in node.input:
      readers[input_name.split(':')[0].lstrip('^')].append(node)
  reads: dict[str, list[list[str]]] = {}
  for name, is_sequence in parameter:
    nodes = readers[name.split(':')[0]]
    if is_sequence and {node.op for node in nodes} == {'DatasetToSingleElement'}:
      count = len(nodes[0].attr['output_types'].list.type)
      reads[name] = []
      for node in nodes:
        reads[name].append([f'{node.name}:{i}' for i in range(count)])
  return reads


def import_computation(block: Any) -> ImportedGraph:
  """Imports a compiled computation. Raises NotImplementedError if it has no TensorFlow graph."""
  kind = private_apis.block_kind(block)
  if kind != 'tensorflow':
    what = f'a computation of kind {kind!r}'
    if kind == 'xla':
      what = 'a tff.jax computation'
    raise NotImplementedError(
      f'the graph engine does not know {what}: write it as a tff.tensorflow.computation, or run '
      "it in TFF's native context (tff_adaptive.engine.set_native_context) if your TFF's "
      'worker is built for it'
    )
  return ImportedGraph(private_apis.tensorflow_of(block))
