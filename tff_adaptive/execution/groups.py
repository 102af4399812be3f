"""Computations that several clients can do together, as batched operations.

A `tff.tensorflow.computation` says what one client does. Where the same can be done for G clients
at once, faster than one after another, its builder marks one of its results and gives that
implementation; the graph engine finds the mark and uses it. Other runtimes see only an identity.
"""

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf

_MARK = 'tff_adaptive_group'
_numbers = itertools.count()
_registry: dict[str, 'Group'] = {}


@dataclasses.dataclass(frozen=True)
class Group:
  """How G clients do a computation together.

  Attributes:
    together: Takes the list of the G clients' arguments (each a tuple of Python containers, with
      each sequence as its only element) and returns the computation's result with a leading axis
      G on each tensor.
    preferred: The G that is fastest on a CPU; 1 if it is faster not to.
    is_batched: Whether `together` is made of batched operations throughout, so that a large G
      fills a GPU.
  """

  together: Callable[[list[Any]], Any]
  preferred: int = 1
  is_batched: bool = False


def mark(result: tf.Tensor, group: Group) -> tf.Tensor:
  """Marks a computation as one that clients can do together.

  Args:
    result: One of the tensors that it returns.
    group: How they do it.

  Returns:
    The tensor to return instead.
  """
  name = f'{_MARK}_{next(_numbers)}'
  _registry[name] = group
  return tf.identity(result, name=name)


def find(graph_def: Any) -> Optional[Group]:
  """The group of a graph, if it was marked in this process."""
  for node in graph_def.node:
    found = re.search(rf'{_MARK}_\d+', node.name)
    if found and found.group() in _registry:
      return _registry[found.group()]
  return None
