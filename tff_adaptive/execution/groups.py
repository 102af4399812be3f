"""Computations that several clients can do together, as batched operations.

A `tff.tensorflow.computation` says what one client does. Where the same can be done for G clients
at once, faster than one after another, its builder declares that implementation here; the graph
engine finds it by the computation's graph and uses it. Other runtimes know nothing of it.
"""

import dataclasses
import functools
import hashlib
import uuid
import weakref
from collections.abc import Callable
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

_MARK = 'tff_adaptive_group'


@dataclasses.dataclass(frozen=True)
class Group:
  """How G clients do a computation together.

  Attributes:
    together: Takes the list of the G clients' arguments (each a tuple of Python containers, one
      for each type, with each sequence as its only element) and returns the computation's result
      with a leading axis G on each tensor.
    is_batched: Whether `together` is made of batched operations throughout, so that a large G
      fills a GPU.
    num_arguments: The number of the computation's types; `computation` fills it in.
  """

  together: Callable[[list[Any]], Any]
  is_batched: bool = False
  num_arguments: int = 0


# By the digest of a whole computation: one that calls it and does more is another. A group lives as
# long as its computation, which holds it (`keep`): it holds the model.
_registry: weakref.WeakValueDictionary[bytes, Group] = weakref.WeakValueDictionary()


def computation(group: Group, *types: Any) -> Callable[[Callable[..., Any]], tff.Computation]:
  """As `@tff.tensorflow.computation(*types)`, for one that clients can also do together.

  Args:
    group: How they do it.
    *types: The types of the arguments.

  Returns:
    The decorator.
  """

  def declare(function):
    @functools.wraps(function)  # TFF takes the arguments' names from the signature.
    def marked(*arguments, **named):
      tf.no_op(name=f'{_MARK}_{uuid.uuid4().hex}')  # No other computation has this graph.
      return function(*arguments, **named)

    comp = tff.tensorflow.computation(*types)(marked)
    mine = dataclasses.replace(group, num_arguments=len(types))
    _registry[_digest(tff.framework.serialize_computation(comp).tensorflow)] = mine
    keep(comp, mine)
    return comp

  return declare


def keep(comp: tff.Computation, *kept: Any) -> None:
  """Makes groups, or the computations that hold them, live as long as one composed of them."""
  vars(comp).setdefault(_MARK, []).extend(kept)


def find(proto: Any) -> Optional[Group]:
  """The group of a computation (the `tensorflow` field of its proto), if this process has one."""
  return _registry.get(_digest(proto))


def _digest(proto):
  return hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()
