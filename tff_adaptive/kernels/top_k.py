"""Puts a compiled operation in place of `compression.selection.keep_largest`, on a CPU."""

from typing import Any

import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.compression import selection
from tff_adaptive.kernels import library

_OPERATION = f'{library.PREFIX}KeepLargest'
_CALLS = frozenset({'PartitionedCall', 'StatefulPartitionedCall'})


def substitute(graph_def: Any) -> None:
  """Puts the operation in place of the calls of functions that do the same.

  Nothing changes where the operation cannot run or be compiled: it is faster, and the numbers are
  the same to the bit. With a GPU the functions stay, whose operations run there.

  Args:
    graph_def: A `GraphDef`, which is changed.
  """
  ks = {}
  for function in graph_def.library.function:
    # Reading an attribute that is not there would add it.
    if '_implements' in function.attr:
      name, _, k = function.attr['_implements'].s.decode().partition(':')
      if name == selection.IMPLEMENTED:
        ks[function.signature.name] = int(k)
  if not ks or tf.config.get_visible_devices('GPU') or not library.is_available():
    return
  for node in private_apis.all_nodes(graph_def):
    if node.op in _CALLS and node.attr['f'].func.name in ks:
      _replace(node, ks[node.attr['f'].func.name])


def _replace(node: Any, k: int) -> None:
  """Turns a call into the operation, whose outputs have the names of those of a call."""
  node.op = _OPERATION
  node.attr.clear()
  # An input with ^ only says what comes before.
  node.attr['N'].i = sum(not name.startswith('^') for name in node.input)
  node.attr['k'].i = k
