"""Gives each client its own streams of random numbers.

An operation that draws from a seed, such as the RandomUniform of Keras's Dropout, keeps its place
in its stream in its kernel. Clients that train at the same time share the kernel, so that a
client's numbers would depend on which clients are faster. Here each such operation in a client's
graph draws from a variable that is passed to the graph, and through its functions, as an argument.
The variable is new for each call. Its first value depends on the operation's seeds, the client's
place in the cohort and the call's other arguments, such as the weights, which differ from round to
round.

Operations without a seed, those in functions of `tf.data`, and those of other distributions (gamma,
Poisson, categorical, shuffles) stay as they are: with a seed they repeat with one client at a time.
"""

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import graph_functions, private_apis

_NAME = 'tff_adaptive_stream'
_PHILOX = 1  # The number of TensorFlow's generator.
_MOST_HASHED = 1024  # The elements of an argument that count for the first value of a stream.
# Each operation that draws, and the stateless one that draws the same distribution.
_DRAWS = {
  'RandomUniform': tf.raw_ops.StatelessRandomUniformV2,
  'RandomUniformInt': tf.raw_ops.StatelessRandomUniformIntV2,
  'RandomStandardNormal': tf.raw_ops.StatelessRandomNormalV2,
  'TruncatedNormal': tf.raw_ops.StatelessTruncatedNormalV2,
}
# The attributes with the functions that a node calls with its own arguments, and that with the
# arguments' types.
_CALLS = {
  'PartitionedCall': (('f',), 'Tin'),
  'StatefulPartitionedCall': (('f',), 'Tin'),
  'If': (('then_branch', 'else_branch'), 'Tin'),
  'StatelessIf': (('then_branch', 'else_branch'), 'Tin'),
  'Case': (('branches',), 'Tin'),
  'StatelessCase': (('branches',), 'Tin'),
  'While': (('cond', 'body'), 'T'),
  'StatelessWhile': (('cond', 'body'), 'T'),
  'ReduceDataset': (('f',), 'Targuments'),
}
_LOOPS = ('While', 'StatelessWhile')
_client: contextvars.ContextVar[tf.Tensor | None] = contextvars.ContextVar('client', default=None)


@contextlib.contextmanager
def of_client(position: tf.Tensor) -> Iterator[None]:
  """A context manager for tracing the work of the client at this place in the cohort, int32 []."""
  token = _client.set(position)
  try:
    yield
  finally:
    _client.reset(token)


def client() -> tf.Tensor | None:
  """Returns the place of the client whose work is being traced, or None at the server."""
  return _client.get()


def has_seeds(graph_def: Any) -> bool:
  """Returns whether a graph has operations that draw from a seed."""
  return any(map(_draws_from_seed, private_apis.all_nodes(graph_def)))


def pass_in(graph_def: Any) -> dict[str, tuple[int, int]]:
  """Makes the operations that draw from a seed use streams that are arguments of the graph.

  Returns the seeds of each stream by the name of the placeholder that takes its handle.
  """
  return _Streams(graph_def).pass_in()


def opened(seeds: Sequence[tuple[int, int]], arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
  """Returns the handles of new streams of the client whose work is being traced.

  Args:
    seeds: The seeds of each stream.
    arguments: The tensors on which the streams depend, besides the client's place.
  """
  fingerprint = _fingerprint(arguments)
  handles = []
  for seed in seeds:
    # Two int32, as the functions for seeds take them.
    first = tf.constant([part & 0x7FFFFFFF for part in seed], tf.int32)
    for number in (client(), fingerprint):
      first = tf.random.experimental.stateless_fold_in(first, number)
    key = tf.random.stateless_uniform([1], first, None, None, tf.int64)
    handle = tf.raw_ops.VarHandleOp(
      dtype=tf.int64, shape=[3], shared_name=private_apis.anonymous_name()
    )
    begun = tf.raw_ops.AssignVariableOp(resource=handle, value=tf.concat([[0, 0], key], 0))
    with tf.control_dependencies([begun]):
      handles.append(tf.identity(handle))
  return handles


class _Streams:
  """Rewrites a graph; the streams are numbered, and functions take theirs in this order."""

  def __init__(self, graph_def: Any):
    self._graph = graph_def
    self._functions = {f.signature.name: f for f in graph_def.library.function}
    self._seeds: list[tuple[int, int]] = []
    # By a function's name ('' for the graph) and that of a node that draws, its stream's number.
    self._stream: dict[tuple[str, str], int] = {}
    self._draws: dict[tuple[str, tf.DType, tf.DType], str] = {}  # The functions that draw.

  def pass_in(self) -> dict[str, tuple[int, int]]:
    """See the function `pass_in`."""
    of_others = self._functions_of_others()
    scopes = {name: f.node_def for name, f in self._functions.items() if name not in of_others}
    scopes[''] = self._graph.node  # The graph itself.
    needs = {name: self._numbered(name, nodes) for name, nodes in scopes.items()}
    while self._spread(scopes, needs):  # Once for each level of calls.
      pass
    bodies: set[str] = set()
    for nodes in scopes.values():
      bodies.update(node.attr['body'].func.name for node in nodes if node.op in _LOOPS)
    for name, nodes in scopes.items():
      for node in nodes:
        self._rewrite(name, node, needs)
      if name and needs[name]:
        _add_arguments(self._functions[name], sorted(needs[name]), name in bodies)
    names = [f'{_NAME}_{number}' for number in range(len(self._seeds))]
    for name in names:
      placeholder = self._graph.node.add()
      placeholder.name = name
      placeholder.op = 'Placeholder'
      placeholder.attr['dtype'].type = tf.resource.as_datatype_enum
      placeholder.attr['shape'].shape.SetInParent()
    return dict(zip(names, self._seeds))

  def _called(self, node: Any) -> list[str]:
    """Returns the functions to which a node could pass more arguments."""
    if node.op in self._functions:
      return [node.op]
    keys, _ = _CALLS.get(node.op, ((), ''))
    names: list[str] = []
    for key in keys:
      names.extend(function.name for function in graph_functions.functions_in(node.attr[key]))
    return names

  def _functions_of_others(self) -> set[str]:
    """Returns the functions that nodes of other kinds call, and what those call in turn."""
    pending: list[str] = []
    for node in private_apis.all_nodes(self._graph):
      if node.op in _CALLS or node.op in self._functions:
        continue
      for value in node.attr.values():
        pending.extend(function.name for function in graph_functions.functions_in(value))
    of_others: set[str] = set()
    while pending:
      name = pending.pop()
      if name in self._functions and name not in of_others:
        of_others.add(name)
        for node in self._functions[name].node_def:
          pending.extend(self._called(node))
    return of_others

  def _numbered(self, scope: str, nodes: Any) -> set[int]:
    """Gives each node that draws from a seed a stream; returns their numbers."""
    numbers = set()
    for node in filter(_draws_from_seed, nodes):
      self._stream[scope, node.name] = len(self._seeds)
      numbers.add(len(self._seeds))
      self._seeds.append((node.attr['seed'].i, node.attr['seed2'].i))
    return numbers

  def _spread(self, scopes: dict[str, Any], needs: dict[str, set[int]]) -> bool:
    """Adds to each function's streams those of the functions it calls; returns if any is new."""
    is_new = False
    for name, nodes in scopes.items():
      for node in nodes:
        called = [other for other in self._called(node) if other in needs]
        together: set[int] = set().union(*(needs[other] for other in called))
        # The branches of a node have the same arguments.
        for other in (name, *called):
          if not together <= needs[other]:
            needs[other] |= together
            is_new = True
    return is_new

  def _rewrite(self, scope: str, node: Any, needs: dict[str, set[int]]) -> None:
    if (scope, node.name) in self._stream:
      self._call_draw(node, self._stream[scope, node.name])
      return
    called = [other for other in self._called(node) if other in needs]
    numbers = sorted(set().union(*(needs[other] for other in called)))
    if not numbers:
      return
    _add_inputs(node, numbers)
    if node.op in _CALLS:
      types = node.attr[_CALLS[node.op][1]].list.type
      types.extend([tf.resource.as_datatype_enum] * len(numbers))
    if node.op not in _LOOPS:
      return
    # Passes that overlap would take their numbers in any order.
    node.attr['parallel_iterations'].i = 1
    if node.attr['output_shapes'].list.shape:
      for _ in numbers:
        node.attr['output_shapes'].list.shape.add()

  def _call_draw(self, node: Any, number: int) -> None:
    """Turns a node that draws into a call of a function that draws from a stream."""
    shape_type = tf.as_dtype(node.attr['T'].type)
    if node.op == 'RandomUniformInt':
      dtype = tf.as_dtype(node.attr['Tout'].type)
      types = [shape_type, dtype, dtype, tf.resource]  # The shape, two limits, and the stream.
    else:
      dtype = tf.as_dtype(node.attr['dtype'].type)
      types = [shape_type, tf.resource]
    kind = (node.op, dtype, shape_type)
    if kind not in self._draws:
      definition = _draw_function(*kind)
      self._draws[kind] = definition.signature.name
      self._graph.library.function.append(definition)
    node.op = 'StatefulPartitionedCall'
    node.attr.clear()
    node.attr['f'].func.name = self._draws[kind]
    node.attr['Tin'].list.type.extend(t.as_datatype_enum for t in types)
    node.attr['Tout'].list.type.append(dtype.as_datatype_enum)
    _add_inputs(node, [number])


def _draws_from_seed(node: Any) -> bool:
  return node.op in _DRAWS and bool(node.attr['seed'].i or node.attr['seed2'].i)


def _draw_function(op: str, dtype: tf.DType, shape_type: tf.DType) -> Any:
  """Returns the FunctionDef of (inputs of `op`, handle of a stream) -> the numbers drawn."""

  def draw(shape: tf.Tensor, *inputs: tf.Tensor) -> tf.Tensor:
    *limits, stream = inputs
    count = tf.cast(tf.reduce_prod(tf.cast(shape, tf.int64)), tf.uint64)
    place = tf.raw_ops.RngReadAndSkip(resource=stream, alg=_PHILOX, delta=count)
    counter_and_key = tf.bitcast(place, tf.uint64)
    where = dict(counter=counter_and_key[:2], key=counter_and_key[2:], alg=_PHILOX)
    if limits:
      return _DRAWS[op](shape=shape, minval=limits[0], maxval=limits[1], **where)
    return _DRAWS[op](shape=shape, dtype=dtype, **where)

  limits = []
  if op == 'RandomUniformInt':
    limits = [tf.TensorSpec([], dtype), tf.TensorSpec([], dtype)]
  signature = [tf.TensorSpec([None], shape_type), *limits, tf.TensorSpec([], tf.resource)]
  draw.__name__ = f'{_NAME}_draw'
  traced = tf.function(draw, input_signature=signature, autograph=False)
  definition = private_apis.function_def(traced.get_concrete_function())
  copy = type(definition)()
  copy.CopyFrom(definition)
  # A node that draws has one output of this name.
  (result,) = copy.signature.output_arg
  value = copy.ret[result.name]
  del copy.ret[result.name]
  result.name = 'output'
  copy.ret['output'] = value
  return copy


def _add_inputs(node: Any, numbers: Sequence[int]) -> None:
  """Adds streams to a node's inputs, before its control inputs."""
  controls = [name for name in node.input if name.startswith('^')]
  values = [name for name in node.input if not name.startswith('^')]
  del node.input[:]
  node.input.extend([*values, *(f'{_NAME}_{number}' for number in numbers), *controls])


def _add_arguments(function: Any, numbers: Sequence[int], is_body: bool) -> None:
  """Adds streams to a function's arguments, and to the results of the body of a loop."""
  for number in numbers:
    name = f'{_NAME}_{number}'
    argument = function.signature.input_arg.add()
    argument.name = name
    argument.type = tf.resource.as_datatype_enum
    if is_body:
      result = function.signature.output_arg.add()
      result.name = f'{name}_out'
      result.type = tf.resource.as_datatype_enum
      function.ret[result.name] = name


def _fingerprint(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns an exact int32 hash of the first elements of each tensor of numbers."""
  total = tf.constant(0)
  for tensor in tensors:
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
      continue
    head = tf.reshape(tensor, [-1])[:_MOST_HASHED]
    octets = tf.reshape(tf.cast(tf.bitcast(head, tf.uint8), tf.int32), [-1])
    # Odd factors, because these lose no bits when int32 overflows.
    total = 31 * total + tf.reduce_sum(octets * (1 + 2 * tf.range(tf.size(octets))))
  return total
