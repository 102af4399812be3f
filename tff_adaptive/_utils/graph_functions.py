"""The functions of a serialized TensorFlow graph: who refers to them, and names of their own."""

import hashlib
from collections.abc import Iterable
from typing import Any

from tff_adaptive._utils import private_apis


def functions_in(attr: Any) -> Iterable[Any]:
  """Returns the functions that a node's attribute refers to: one, a list of them, or none."""
  if attr.HasField('func'):
    return [attr.func]
  functions: Iterable[Any] = attr.list.func
  return functions


def name_apart(graph_def: Any) -> None:
  """Adds the graph's digest to the names of its functions.

  TensorFlow numbers the functions of each process, so graphs from two processes may use the same
  name for different functions. In the process that wrote the graph, the name is that of a function
  that TensorFlow forgets with the model it came from.
  """
  # Without `deterministic` the attributes of a node have no fixed order.
  digest = hashlib.sha256(graph_def.SerializeToString(deterministic=True)).hexdigest()[:16]
  names = {f.signature.name: f'{f.signature.name}_{digest}' for f in graph_def.library.function}

  for node in private_apis.all_nodes(graph_def):
    # The op of a node that calls a function is the function's name.
    node.op = names.get(node.op, node.op)
    for attr in node.attr.values():
      for function in functions_in(attr):
        function.name = names.get(function.name, function.name)
  for function in graph_def.library.function:
    function.signature.name = names[function.signature.name]
  for gradient in graph_def.library.gradient:
    gradient.function_name = names.get(gradient.function_name, gradient.function_name)
    gradient.gradient_func = names.get(gradient.gradient_func, gradient.gradient_func)
