"""Computations that a group of clients can run together, as batched operations.

A `tff.tensorflow.computation` describes the work of one client. If there is a faster implementation
for G clients at once, the builder of the computation declares it here. The graph engine finds it by
the computation's graph and uses it; other runtimes ignore it.
"""

import dataclasses
import functools
import hashlib
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import private_apis

_MARK = 'tff_adaptive_group'


@dataclasses.dataclass(frozen=True)
class Group:
  """How G clients run a computation together.

  Attributes:
    together: Takes the list of the G clients' arguments (each a tuple of Python containers, one for
      each type, with each sequence as its only element) and returns the computation's result with a
      leading axis G on each tensor.
    is_batched: Whether `together` has batched operations only, so that a large G fills a GPU.
    num_arguments: The number of the computation's types; `computation` fills it in.
  """

  together: Callable[[list[Any]], Any]
  is_batched: bool = False
  num_arguments: int = 0


# By the digest of a whole computation: one that calls it and does more is another. A group lives as
# long as its computation, which holds it (`keep`): it holds the model.
_registry: weakref.WeakValueDictionary[bytes, Group] = weakref.WeakValueDictionary()


def computation(group: Group, *types: Any) -> Callable[[Callable[..., Any]], tff.Computation]:
  """Like `@tff.tensorflow.computation(*types)`, with an implementation for groups of clients.

  Args:
    group: The implementation for groups.
    *types: The types of the arguments.
  """

  def declare(function: Callable[..., Any]) -> tff.Computation:
    @functools.wraps(function)  # TFF takes the arguments' names from the signature.
    def marked(*arguments: Any, **named: Any) -> Any:
      tf.no_op(name=f'{_MARK}_{uuid.uuid4().hex}')  # No other computation has this graph.
      return function(*arguments, **named)

    comp = tff.tensorflow.computation(*types)(marked)
    mine = dataclasses.replace(group, num_arguments=len(types))
    _registry[_digest(private_apis.tensorflow_of(comp))] = mine
    keep(comp, mine)
    return comp

  return declare


def keep(comp: tff.Computation, *held: Any) -> None:
  """Keeps `held` alive as long as `comp`: groups, or computations that refer to groups."""
  private_apis.attach(comp, _MARK, *held)


def find(message: Any) -> Group | None:
  """Returns the group of a computation, or None if this process has none.

  Args:
    message: The computation's `TensorFlow` message; see `private_apis.tensorflow_of`.
  """
  return _registry.get(_digest(message))


def _digest(message: Any) -> bytes:
  return hashlib.sha256(private_apis.message_bytes(message)).digest()
