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
  """An implementation of a client's computation for a group of G clients at once.

  Attributes:
    together: A function of a list with the arguments of each of the G clients, which returns the
      computation's result with a leading axis of length G on each tensor. A client's arguments are
      a tuple of Python containers, one for each argument. A sequence is given as its only element.
    is_batched: Whether `together` has batched operations only, so that a large G suits a GPU.
    num_arguments: The number of the computation's arguments, which `computation` sets.
  """

  together: Callable[[list[Any]], Any]
  is_batched: bool = False
  num_arguments: int = 0


# Digest of a whole computation -> its group. A computation that calls it has another digest. Groups
# refer to models; `keep` makes each live as long as its computation.
_registry: weakref.WeakValueDictionary[bytes, Group] = weakref.WeakValueDictionary()


def computation(group: Group, *types: Any) -> Callable[[Callable[..., Any]], tff.Computation]:
  """Returns a decorator like `tff.tensorflow.computation(*types)` that also declares a `Group`.

  Args:
    group: The implementation for several clients. Its `num_arguments` is set here.
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
  """Keeps objects (`Group`s, or computations that refer to `Group`s) alive as long as `comp`."""
  private_apis.attach(comp, _MARK, *held)


def find(message: Any) -> Group | None:
  """Returns the `Group` of a computation, or None if this process has not declared one.

  Args:
    message: The computation's `TensorFlow` message; see `private_apis.tensorflow_of`.
  """
  return _registry.get(_digest(message))


def _digest(message: Any) -> bytes:
  return hashlib.sha256(private_apis.message_bytes(message)).digest()
