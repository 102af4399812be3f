"""Interprets a TFF computation as a graph of lazy nodes of the server and of the clients.

TFF's compiler first converts the computation to call-dominant form, which has few intrinsics. The
interpreter converts this form to `nodes.Node`s.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import private_apis
from tff_adaptive.engine.graph import imported_graph, sequences, values
from tff_adaptive.engine.graph.nodes import CLIENTS, SERVER, Aggregate, Grouped, Node, nodes_in

_framework = private_apis.framework()
# Takes an intrinsic's building block and its argument, and returns the intrinsic's value.
_Builder = Callable[[Any, Any], Any]


def _level(deps: list[Node]) -> int:
  return max((d.level for d in deps), default=0)


def _lazy(
  placement: Any,
  type_spec: tff.types.Type,
  inputs: Any,
  compute: Callable[[Any], Any],
  free: bool = False,
) -> Node:
  """Returns a node that depends on the nodes in `inputs`; see `Node` for the other arguments."""
  deps = nodes_in(inputs)
  return Node(placement, type_spec, deps, compute, _level(deps), free)


class _Compiled:
  """A TensorFlow computation as a function. It returns a node if its argument contains a node."""

  def __init__(self, block: Any, graph: imported_graph.ImportedGraph):
    self._graph = graph
    type_spec = block.type_signature
    self.parameter = type_spec.parameter
    self.result = type_spec.result
    self.group = graph.group

  def __call__(self, argument: Any) -> Any:
    # A client's value exists only inside the loop over the clients, so the call waits for it.
    if nodes_in(argument):
      return _lazy(None, self.result, argument, lambda frame: self(frame.resolve(argument)))
    flat: list[Any] = []
    if self.parameter is not None:
      flat = values.flatten(argument, self.parameter)
    results = self._graph(flat)
    for result, leaf in zip(results, values.leaf_types(self.result)):
      if tf.is_tensor(result):  # The graph may not know the shape.
        result.set_shape(values.tensor_shape(leaf))
    return values.pack(results, self.result)


class Interpreter:
  """Interprets TFF's building blocks; imports each TensorFlow graph once."""

  def __init__(self) -> None:
    self._graphs: dict[bytes, imported_graph.ImportedGraph] = {}

  def evaluate(self, block: Any, scope: dict[str, Any]) -> Any:
    """Returns a building block's value, such as a Node. `scope` has the values of its names."""
    if isinstance(block, _framework.Reference):
      return scope[block.name]
    if isinstance(block, _framework.Selection):
      return self._select(block, scope)
    if isinstance(block, _framework.Struct):
      return tff.structure.Struct(
        [(n, self.evaluate(b, scope)) for n, b in tff.structure.iter_elements(block)]
      )
    if isinstance(block, _framework.Call):
      function = self.evaluate(block.function, scope)
      argument = None
      if block.argument is not None:
        argument = self.evaluate(block.argument, scope)
      return function(argument)
    if isinstance(block, _framework.Lambda):
      # Each call gets a scope of its own, so that calls of one function do not share values.
      name = block.parameter_name
      body = block.result
      return lambda argument: self.evaluate(body, {**scope, name: argument})
    if isinstance(block, _framework.Block):
      scope = dict(scope)
      for name, local in block.locals:
        scope[name] = self.evaluate(local, scope)
      return self.evaluate(block.result, scope)
    if isinstance(block, _framework.CompiledComputation):
      key = private_apis.block_key(block)
      if key not in self._graphs:
        self._graphs[key] = imported_graph.import_computation(block)
      return _Compiled(block, self._graphs[key])
    if isinstance(block, _framework.Intrinsic):
      return _intrinsic(block)
    if isinstance(block, _framework.Literal):
      return tf.constant(block.value)
    raise NotImplementedError(_unknown(f'a building block of kind {type(block).__name__}'))

  def _select(self, block: Any, scope: dict[str, Any]) -> Any:
    source = self.evaluate(block.source, scope)
    index = block.as_index()
    if not isinstance(source, Node):
      return source[index]
    member = source.type[index]
    return _lazy(source.placement, member, source, lambda frame: frame.value(source)[index])


def _unknown(what: str) -> str:
  return (
    f"the graph engine does not know {what}: run this computation in TFF's native context "
    '(tff_adaptive.engine.set_native_context)'
  )


def _apply(placement: Any, block: Any, function_and_value: Any) -> Node:
  function, value = function_and_value
  result = block.type_signature.result.member
  node = _lazy(
    placement, result, value, lambda frame: frame.resolve(function(frame.resolve(value)))
  )
  # Clients can compute this together if the computation has a batched form.
  if placement is CLIENTS and isinstance(function, _Compiled) and function.group:
    node.grouped = Grouped(function.group, value, function.parameter)
  return node


def _held(placement: Any, block: Any, value: Any) -> Node:
  """Returns a node for a value that exists already, such as a broadcast or a zipped struct."""
  result = block.type_signature.result.member
  return _lazy(placement, result, value, lambda frame: frame.resolve(value), free=True)


def _aggregate(block: Any, arguments: Any) -> Node:
  value, zero, accumulate, merge, report = arguments
  accumulator_type = block.type_signature.parameter[1]
  fold = Aggregate(value, zero, accumulate, merge, report, accumulator_type)
  deps = [value, *nodes_in(zero)]
  result = block.type_signature.result.member
  # One level up: it is known only after all clients of the level have run.
  return Node(SERVER, result, deps, None, _level(deps) + 1, aggregate=fold)


def _select(block: Any, arguments: Any) -> Node:
  keys, _, server_value, function = arguments
  element = block.type_signature.result.member.element

  def compute(frame: Any) -> values.Sequence:
    return sequences.select(frame.value(keys), frame.resolve(server_value), function, element)

  inputs = tff.structure.Struct([(None, keys), (None, server_value)])
  return _lazy(CLIENTS, block.type_signature.result.member, inputs, compute)


# Name of each intrinsic that call-dominant form can have -> its function. Sums and means, also
# weighted or secure, are aggregates by then (tff.tensorflow.replace_intrinsics_with_bodies).
INTRINSICS: dict[str, _Builder] = {
  _framework.FEDERATED_APPLY.uri: functools.partial(_apply, SERVER),
  _framework.FEDERATED_MAP.uri: functools.partial(_apply, CLIENTS),
  _framework.FEDERATED_MAP_ALL_EQUAL.uri: functools.partial(_apply, CLIENTS),
  _framework.FEDERATED_ZIP_AT_SERVER.uri: functools.partial(_held, SERVER),
  _framework.FEDERATED_ZIP_AT_CLIENTS.uri: functools.partial(_held, CLIENTS),
  _framework.FEDERATED_BROADCAST.uri: functools.partial(_held, CLIENTS),
  _framework.FEDERATED_VALUE_AT_SERVER.uri: functools.partial(_held, SERVER),
  _framework.FEDERATED_VALUE_AT_CLIENTS.uri: functools.partial(_held, CLIENTS),
  _framework.FEDERATED_EVAL_AT_SERVER.uri: lambda block, function: _apply(
    SERVER, block, (function, None)
  ),
  _framework.FEDERATED_EVAL_AT_CLIENTS.uri: lambda block, function: _apply(
    CLIENTS, block, (function, None)
  ),
  _framework.FEDERATED_AGGREGATE.uri: _aggregate,
  'federated_select': _select,
  'federated_secure_select': _select,
  'sequence_map': sequences.map_sequence,
  'sequence_reduce': sequences.reduce_sequence,
  'sequence_sum': sequences.sum_sequence,
}


def _intrinsic(block: Any) -> Callable[[Any], Any]:
  build = INTRINSICS.get(block.uri)
  if build is None:
    raise NotImplementedError(_unknown(f'the intrinsic {block.uri!r}'))
  return functools.partial(build, block)
