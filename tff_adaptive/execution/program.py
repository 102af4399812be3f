"""A TFF computation as a graph of lazy nodes: what the server does, what every client does.

TFF's own compiler brings a computation into call-dominant form, in which few intrinsics occur.
Interpreting it here gives `nodes.Node`s.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.execution import graphs, sequences, values
from tff_adaptive.execution.nodes import CLIENTS, SERVER, Aggregate, Grouped, Node, nodes_in


def _level(deps):
  return max((d.level for d in deps), default=0)


def _lazy(placement, type_spec, inputs, compute, free=False):
  deps = nodes_in(inputs)
  return Node(placement, type_spec, deps, compute, _level(deps), free)


class _Compiled:
  """A TensorFlow computation as a function of values; lazy if an argument is."""

  def __init__(self, building_block, graph):
    self._graph = graph
    type_spec = building_block.type_signature
    self.parameter, self.result = type_spec.parameter, type_spec.result
    self.group = graph.group

  def __call__(self, argument):
    if nodes_in(argument):
      return _lazy(None, self.result, argument, lambda frame: self(frame.resolve(argument)))
    flat = [] if self.parameter is None else values.flatten(argument, self.parameter)
    return values.pack(self._graph(flat), self.result)


class Interpreter:
  """Interprets building blocks; imports each TensorFlow graph once."""

  def __init__(self):
    self._graphs: dict[bytes, graphs.ImportedGraph] = {}

  def evaluate(self, block: Any, scope: dict[str, Any]) -> Any:
    """Value of a building block: a Struct, a Node, a callable or a tensor."""
    if isinstance(block, tff.framework.Reference):
      return scope[block.name]
    if isinstance(block, tff.framework.Selection):
      return self._select(block, scope)
    if isinstance(block, tff.framework.Struct):
      return tff.structure.Struct(
        [(n, self.evaluate(b, scope)) for n, b in tff.structure.iter_elements(block)]
      )
    if isinstance(block, tff.framework.Call):
      function = self.evaluate(block.function, scope)
      argument = None if block.argument is None else self.evaluate(block.argument, scope)
      return function(argument)
    if isinstance(block, tff.framework.Lambda):
      name, body = block.parameter_name, block.result
      return lambda argument: self.evaluate(body, {**scope, name: argument})
    if isinstance(block, tff.framework.Block):
      scope = dict(scope)
      for name, local in block.locals:
        scope[name] = self.evaluate(local, scope)
      return self.evaluate(block.result, scope)
    if isinstance(block, tff.framework.CompiledComputation):
      key = block.proto.SerializeToString()
      if key not in self._graphs:
        self._graphs[key] = graphs.import_computation(block)
      return _Compiled(block, self._graphs[key])
    if isinstance(block, tff.framework.Intrinsic):
      return _intrinsic(block)
    if isinstance(block, tff.framework.Literal):
      return tf.constant(block.value)
    raise NotImplementedError(_unknown(f'a building block of kind {type(block).__name__}'))

  def _select(self, block, scope):
    source = self.evaluate(block.source, scope)
    if isinstance(source, Node):
      member = source.type[block.index if block.index is not None else block.name]
      return _lazy(
        source.placement,
        member,
        source,
        lambda frame: _element(frame.value(source), block),
        free=True,
      )
    return _element(source, block)


def _element(struct, block):
  return struct[block.index] if block.index is not None else getattr(struct, block.name)


def _unknown(what: str) -> str:
  return (
    f"the graph engine does not know {what}: run this computation in TFF's native context "
    '(tff_adaptive.execution.set_native_context)'
  )


def _apply(placement):
  def build(block, function_and_value):
    function, value = function_and_value
    result = block.type_signature.result.member
    node = _lazy(
      placement, result, value, lambda frame: frame.resolve(function(frame.resolve(value)))
    )
    if placement is CLIENTS and isinstance(function, _Compiled) and function.group:
      node.grouped = Grouped(function.group, value, function.parameter)
    return node

  return build


def _zip(placement):
  def build(block, struct):
    result = block.type_signature.result.member
    return _lazy(placement, result, struct, lambda frame: frame.resolve(struct), free=True)

  return build


def _broadcast(block, value):
  result = block.type_signature.result.member
  return _lazy(CLIENTS, result, value, lambda frame: frame.resolve(value), free=True)


def _value_at(placement):
  def build(block, value):
    result = block.type_signature.result.member
    return _lazy(placement, result, value, lambda frame: frame.resolve(value), free=True)

  return build


def _eval_at(placement):
  def build(block, function):
    result = block.type_signature.result.member
    return _lazy(placement, result, None, lambda frame: frame.resolve(function(None)))

  return build


def _aggregate(block, arguments):
  value, zero, accumulate, merge, report = arguments
  accumulator_type = block.type_signature.parameter[1]
  fold = Aggregate(value, zero, accumulate, merge, report, accumulator_type)
  deps = [value, *nodes_in(zero)]
  result = block.type_signature.result.member
  return Node(SERVER, result, deps, None, _level(deps) + 1, aggregate=fold)


def _select(block, arguments):
  keys, _, server_value, function = arguments
  element = block.type_signature.result.member.element

  def compute(frame):
    return sequences.select(frame.value(keys), frame.resolve(server_value), function, element)

  inputs = tff.structure.Struct([(None, keys), (None, server_value)])
  return _lazy(CLIENTS, block.type_signature.result.member, inputs, compute)


def _sequence_map(block, arguments):
  function, sequence = arguments
  return sequences.map_sequence(function, sequence, block.type_signature.parameter[0])


def _sequence_reduce(block, arguments):
  sequence, zero, function = arguments
  return sequences.reduce_sequence(sequence, zero, function, block.type_signature.parameter[2])


def _sequence_sum(block, sequence):
  return sequences.sum_sequence(sequence, block.type_signature.result)


# Each intrinsic that call-dominant form leaves, by its name. The sums and means, plain, weighted
# and secure, are aggregates by then (tff.tensorflow.replace_intrinsics_with_bodies).
INTRINSICS: dict[str, Callable[[Any, Any], Any]] = {
  tff.framework.FEDERATED_APPLY.uri: _apply(SERVER),
  tff.framework.FEDERATED_MAP.uri: _apply(CLIENTS),
  tff.framework.FEDERATED_MAP_ALL_EQUAL.uri: _apply(CLIENTS),
  tff.framework.FEDERATED_ZIP_AT_SERVER.uri: _zip(SERVER),
  tff.framework.FEDERATED_ZIP_AT_CLIENTS.uri: _zip(CLIENTS),
  tff.framework.FEDERATED_BROADCAST.uri: _broadcast,
  tff.framework.FEDERATED_VALUE_AT_SERVER.uri: _value_at(SERVER),
  tff.framework.FEDERATED_VALUE_AT_CLIENTS.uri: _value_at(CLIENTS),
  tff.framework.FEDERATED_EVAL_AT_SERVER.uri: _eval_at(SERVER),
  tff.framework.FEDERATED_EVAL_AT_CLIENTS.uri: _eval_at(CLIENTS),
  tff.framework.FEDERATED_AGGREGATE.uri: _aggregate,
  'federated_select': _select,
  'federated_secure_select': _select,
  'sequence_map': _sequence_map,
  'sequence_reduce': _sequence_reduce,
  'sequence_sum': _sequence_sum,
}


def _intrinsic(block):
  build = INTRINSICS.get(block.uri)
  if build is None:
    raise NotImplementedError(_unknown(f'the intrinsic {block.uri!r}'))

  def call(argument):
    if isinstance(argument, tff.structure.Struct) and block.uri not in (
      tff.framework.FEDERATED_ZIP_AT_SERVER.uri,
      tff.framework.FEDERATED_ZIP_AT_CLIENTS.uri,
      tff.framework.FEDERATED_VALUE_AT_SERVER.uri,
      tff.framework.FEDERATED_VALUE_AT_CLIENTS.uri,
    ):
      argument = [v for _, v in tff.structure.iter_elements(argument)]
    return build(block, argument)

  return call


def compile_to_call_dominant(comp: tff.framework.ConcreteComputation) -> Any:
  """TFF's compiler: intrinsics with bodies replaced, the rest in call-dominant form.

  Secure sums become sums, with their bounds checked, as in TFF's own simulations.
  """
  comp = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(comp.to_building_block())
  return tff.framework.to_call_dominant(block)
