"""Loop bodies as functions of their own, where TensorFlow would choose a slow kernel in the loop.

On a CPU oneDNN's kernel takes the place of MaxPoolGrad only if TensorFlow's pass over the graph has
met the pooling itself before. The nodes of a loop have no first one: where the pass begins depends
on addresses in memory, so one process in two kept the other kernel, which takes a dozen times as
long, and a round of EMNIST's CNN a quarter longer. A function has no cycle, so there the pooling
always comes first.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

_GRADIENTS = frozenset({'MaxPoolGrad', 'MaxPool3DGrad'})
_CALLS = {'While': 'StatefulPartitionedCall', 'StatelessWhile': 'PartitionedCall'}
_CALL = 'step'


def set_apart(graph_def: tf.compat.v1.GraphDef) -> None:
  """Makes each loop body that has a gradient of max pooling a call of what it was."""
  functions = {f.signature.name: f for f in graph_def.library.function}
  loops = [
    node
    for nodes in (graph_def.node, *(f.node_def for f in functions.values()))
    for node in nodes
    if node.op in _CALLS
  ]
  for name, call in {loop.attr['body'].func.name: _CALLS[loop.op] for loop in loops}.items():
    if is_slow_inlined(name, functions):
      _call_apart(functions[name], call, graph_def.library)


def is_slow_inlined(name: str, functions: Mapping[str, Any]) -> bool:
  """Whether what a function does should stay a function where a loop calls it."""
  if tf.config.get_visible_devices('GPU'):
    return False
  pending, seen = [name], {name}
  while pending:
    for node in functions[pending.pop()].node_def:
      if node.op in _GRADIENTS:
        return True
      called = node.attr['f'].func.name if node.op in _CALLS.values() else ''
      if called in functions and called not in seen:
        pending.append(called)
        seen.add(called)
  return False


def not_inlined(function: Any, library: Any) -> Any:
  """A copy of a function, in the library too, that is called and never inlined."""
  step = library.function.add()
  step.CopyFrom(function)
  step.signature.name = f'{function.signature.name}_{_CALL}'
  step.attr['_noinline'].b = True
  return step


def _call_apart(body: Any, call: str, library: Any) -> None:
  """Moves what a function does into one that is not inlined, and has it call that."""
  step = not_inlined(body, library)
  arguments, results = body.signature.input_arg, body.signature.output_arg
  del body.node_def[:]
  node = body.node_def.add()
  node.name, node.op = _CALL, call
  node.input.extend(argument.name for argument in arguments)
  node.attr['Tin'].list.type.extend(argument.type for argument in arguments)
  node.attr['Tout'].list.type.extend(result.type for result in results)
  node.attr['f'].func.name = step.signature.name
  for i, result in enumerate(results):
    body.ret[result.name] = f'{_CALL}:output:{i}'
  if body.signature.control_output:
    del body.signature.control_output[:]
    body.control_ret.clear()
    body.signature.control_output.append(_CALL)
    body.control_ret[_CALL] = _CALL
