"""Makes the loops of a graph fast: reductions of datasets, and bodies with slow kernels.

`tf.data.Dataset.reduce` is the op ReduceDataset. In each step it calls its function through
tf.data's own runner, with its own executor and without the optimizations of the surrounding graph.
Here it becomes a While loop over an iterator. The function is in the loop's body, where TensorFlow
inlines and optimizes it. As in the op, each element is read after the step before it.

If TensorFlow might choose a slow kernel in the loop, the body becomes a function of its own. On a
CPU, oneDNN's kernel replaces MaxPoolGrad only if TensorFlow's pass over the graph visits the
pooling before its gradient. A loop is a cycle, and where the pass begins depends on addresses in
memory. One process in two therefore kept the slow kernel, which takes 12 times as long; a round of
EMNIST's CNN took a quarter longer. A function has no cycle, so the pooling comes first.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import graph_functions, private_apis

_REDUCE = 'ReduceDataset'
_NAME = 'tff_adaptive_reduce'
_GRADIENTS = frozenset({'MaxPoolGrad', 'MaxPool3DGrad'})
_CALLS = {'While': 'StatefulPartitionedCall', 'StatelessWhile': 'PartitionedCall'}
_CALL = 'step'
# The attributes with the functions of a node that TensorFlow inlines into the body of a loop.
_INLINED = {
  'StatefulPartitionedCall': ('f',),
  'PartitionedCall': ('f',),
  'If': ('then_branch', 'else_branch'),
  'StatelessIf': ('then_branch', 'else_branch'),
}
_numbers = itertools.count()


def replace_reductions(graph_def: Any) -> None:
  """Replaces each ReduceDataset outside tf.data's own functions by a call of a loop.

  A function with this op is copied under a new name: TensorFlow may have the old function already.
  """
  _Replacement(graph_def.library).visit_nodes(graph_def.node, {})


class _Replacement:
  """Replaces the reductions among nodes, and in the functions that the nodes call."""

  def __init__(self, library: Any):
    self._library = library
    self._functions = {f.signature.name: f for f in library.function}
    self._names: dict[str, str] = {}  # A function's name -> its copy's name, or its own.

  def visit_nodes(self, nodes: Any, results: Any) -> bool:
    """Replaces reductions, and returns whether a node has changed.

    Args:
      nodes: The nodes of a graph or of a function.
      results: By the name of each of the function's results, the node's output that it returns.
    """
    replaced: set[str] = set()
    changed = False
    for node in nodes:
      # The functions of other datasets run in tf.data, where a loop would gain nothing.
      if 'Dataset' in node.op and node.op != _REDUCE:
        continue
      for value in node.attr.values():
        for called in graph_functions.functions_in(value):
          name = self._visit_function(called.name)
          if name != called.name:
            called.name = name
            changed = True
      if node.op == _REDUCE:
        replaced.add(node.name)
        self._replace(node)
    if replaced:
      _rename_outputs(nodes, results, replaced)
    return changed or bool(replaced)

  def _visit_function(self, name: str) -> str:
    """Returns the name of a function without reductions that does the same as the function."""
    # Other names are of functions that are not in this graph's library.
    if name in self._functions and name not in self._names:
      # Noted before the visit, in case the function calls itself.
      self._names[name] = name
      copy = type(self._functions[name])()
      copy.CopyFrom(self._functions[name])
      if self.visit_nodes(copy.node_def, copy.ret):
        copy.signature.name = f'{name}_{_NAME}_{next(_numbers)}'
        self._names[name] = copy.signature.name
        self._functions[copy.signature.name] = copy
        self._library.function.append(copy)
    return self._names.get(name, name)

  def _replace(self, node: Any) -> None:
    step = self._functions[node.attr['f'].func.name]
    if _is_slow_inlined(step.signature.name, self._functions):
      step = _not_inlined(step, self._library)
    _call_loop(node, step, self._library)


def _rename_outputs(nodes: Any, results: Any, replaced: set[str]) -> None:
  """Adapts what reads the nodes in `replaced`: the outputs of a call have other names."""

  def output_of(input_name: str) -> str:
    name, _, index = input_name.partition(':components:')  # Not in a graph: it is `name:0` there.
    if index and name in replaced:
      return f'{name}:output:{index}'
    return input_name

  for node in nodes:
    for i, input_name in enumerate(node.input):
      node.input[i] = output_of(input_name)
  for name, input_name in list(results.items()):
    results[name] = output_of(input_name)


def _call_loop(node: Any, function: Any, library: Any) -> None:
  """Turns a ReduceDataset node into a call of a new function, which has the loop."""
  loop = _loop(node, function)
  # The functions of the loop's condition and body.
  library.MergeFrom(loop.graph.as_graph_def().library)
  library.function.append(private_apis.function_def(loop))
  results = list(node.attr['output_types'].list.type)
  node.op = 'StatefulPartitionedCall'
  node.attr.clear()
  node.attr['Tin'].list.type.extend(t.dtype.as_datatype_enum for t in loop.inputs)
  node.attr['Tout'].list.type.extend(results)
  node.attr['f'].func.name = private_apis.function_def(loop).signature.name


def _loop(node: Any, function: Any) -> Any:
  """Returns the loop as a concrete function of the node's inputs: dataset, state and arguments."""
  state_types = _types(node, 'Tstate')
  argument_types = _types(node, 'Targuments')
  state_shapes = [tf.TensorShape(s) for s in node.attr['output_shapes'].list.shape]
  elements = range(len(state_types), len(function.signature.input_arg) - len(argument_types))
  element_types = [tf.as_dtype(function.signature.input_arg[i].type) for i in elements]
  element_shapes = [private_apis.argument_shape(function, i) for i in elements]
  name = function.signature.name

  def run(dataset: tf.Tensor, *state_and_arguments: tf.Tensor) -> list[tf.Tensor]:
    start = state_and_arguments[: len(state_types)]
    arguments = state_and_arguments[len(state_types) :]
    # Iterators are on the host, even if a GPU runs the loop.
    with tf.device('/cpu:0'):
      iterator = tf.raw_ops.AnonymousIteratorV3(
        output_types=element_types, output_shapes=element_shapes
      )
      tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)

    def following() -> tf.Tensor:
      with tf.device('/cpu:0'):
        return tf.raw_ops.IteratorGetNextAsOptional(
          iterator=iterator, output_types=element_types, output_shapes=element_shapes
        )

    def step(optional: tf.Tensor, *state: tf.Tensor) -> tuple[tf.Tensor, ...]:
      with tf.device('/cpu:0'):
        element = tf.raw_ops.OptionalGetValue(
          optional=optional, output_types=element_types, output_shapes=element_shapes
        )
      state = tf.raw_ops.StatefulPartitionedCall(
        args=[*state, *element, *arguments], Tout=state_types, f=name
      )
      # The call's results have no static shapes, and a loop's variables must keep theirs.
      for tensor, shape in zip(state, state_shapes):
        tensor.set_shape(shape)
      with tf.control_dependencies([state[0].op]):  # As in the op; see the module.
        return following(), *state

    _, *state = tf.while_loop(
      lambda optional, *_: tf.raw_ops.OptionalHasValue(optional=optional),
      step,
      (following(), *start),
      parallel_iterations=1,
      name=_NAME,
    )
    return state

  run.__name__ = _NAME
  signature = [tf.TensorSpec([], tf.variant)]
  signature += [tf.TensorSpec(s, t) for s, t in zip(state_shapes, state_types)]
  signature += [tf.TensorSpec(None, t) for t in argument_types]
  return tf.function(run, input_signature=signature, autograph=False).get_concrete_function()


def _types(node: Any, attribute: str) -> list[tf.DType]:
  return [tf.as_dtype(t) for t in node.attr[attribute].list.type]


def set_apart(graph_def: tf.compat.v1.GraphDef) -> None:
  """Without a GPU, moves loop bodies with a MaxPoolGrad into functions that are not inlined."""
  functions = {f.signature.name: f for f in graph_def.library.function}
  loops = [node for node in private_apis.all_nodes(graph_def) if node.op in _CALLS]
  for name, call in {loop.attr['body'].func.name: _CALLS[loop.op] for loop in loops}.items():
    if _is_slow_inlined(name, functions):
      _call_apart(functions[name], call, graph_def.library)


def _is_slow_inlined(name: str, functions: Mapping[str, Any]) -> bool:
  """Returns whether a function becomes slow if a loop that calls it inlines it."""
  # The slow kernel is one of the CPU's.
  if tf.config.get_visible_devices('GPU'):
    return False
  pending = [name]
  seen = {name}
  while pending:
    for node in functions[pending.pop()].node_def:
      if node.op in _GRADIENTS:
        return True
      for attribute in _INLINED.get(node.op, ()):
        called = node.attr[attribute].func.name
        if called in functions and called not in seen:
          pending.append(called)
          seen.add(called)
  return False


def _not_inlined(function: Any, library: Any) -> Any:
  """Adds to the library a copy of a function that is never inlined, and returns the copy."""
  step = library.function.add()
  step.CopyFrom(function)
  step.signature.name = f'{function.signature.name}_{_CALL}'
  step.attr['_noinline'].b = True
  return step


def _call_apart(body: Any, call: str, library: Any) -> None:
  """Moves the nodes of `body` into a function that is not inlined, which `body` then calls."""
  step = _not_inlined(body, library)
  arguments = body.signature.input_arg
  results = body.signature.output_arg
  del body.node_def[:]
  node = body.node_def.add()
  node.name = _CALL
  node.op = call
  node.input.extend(argument.name for argument in arguments)
  node.attr['Tin'].list.type.extend(argument.type for argument in arguments)
  node.attr['Tout'].list.type.extend(result.type for result in results)
  node.attr['f'].func.name = step.signature.name
  for i, result in enumerate(results):
    body.ret[result.name] = f'{_CALL}:output:{i}'
  # The control outputs were nodes that have moved. The call now stands for all of them.
  if body.signature.control_output:
    del body.signature.control_output[:]
    body.control_ret.clear()
    body.signature.control_output.append(_CALL)
    body.control_ret[_CALL] = _CALL
