"""Lazy nodes: a computation's values at the server or at the clients, before they are computed.

A node at the clients says what ONE client computes. A node's level is the number of aggregations
that must end before it can be evaluated.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Optional

import tensorflow_federated as tff

from tff_adaptive.engine import batched_clients

SERVER = tff.SERVER
CLIENTS = tff.CLIENTS


@dataclasses.dataclass(eq=False)
class Node:
  """A value that becomes known only while a round is traced.

  Attributes:
    placement: `tff.SERVER`, `tff.CLIENTS`, or None for an unplaced value.
    type: The type of the value; at the clients, of one client's value.
    deps: The nodes on which the value depends.
    compute: A function of a `client_loop.Frame` that returns the value; None for an aggregate.
    level: The number of aggregations that must end before the value can be computed.
    free: Whether `compute` costs nothing, apart from the nodes in `deps`, so that it may run again.
    aggregate: The aggregation whose result is the value; None for other values.
    grouped: How a group of clients computes the value together; None if no group can.
  """

  placement: Any
  type: tff.types.Type
  deps: list['Node']
  compute: Callable[[Any], Any] | None
  level: int
  free: bool = False
  aggregate: Optional['Aggregate'] = None
  grouped: Optional['Grouped'] = None


@dataclasses.dataclass(frozen=True)
class Grouped:
  """How a group of clients computes a client-placed node together; see `batched_clients`.

  Attributes:
    group: The implementation of the computation for groups.
    argument: The argument of the computation, which may contain nodes.
    parameter: The type of the argument.
  """

  group: batched_clients.Group
  argument: Any
  parameter: tff.types.Type


@dataclasses.dataclass(frozen=True)
class Aggregate:
  """A fold over the clients: `report(accumulate(... accumulate(zero, v_1) ..., v_K))`.

  v_k is the `value` at client k of K. `merge` joins the accumulators of two sets of clients.
  """

  value: Node
  zero: Any
  accumulate: Callable[[Any], Any]
  merge: Callable[[Any], Any]
  report: Callable[[Any], Any]
  accumulator_type: tff.types.Type


def nodes_in(value: Any) -> list[Node]:
  """Returns the nodes inside a (nested) value."""
  return [leaf for leaf in tff.structure.flatten(value) if isinstance(leaf, Node)]


def reachable(roots: list[Node]) -> list[Node]:
  """Returns the roots and all nodes that they depend on, once each, dependencies first."""
  seen: dict[Node, None] = {}
  # A stack instead of recursion, which would be too deep for a long computation. A node is on it
  # twice: `done` is true once the nodes that it depends on are listed.
  stack = [(node, False) for node in reversed(roots)]
  while stack:
    node, done = stack.pop()
    if done:
      seen[node] = None
    elif node not in seen:
      stack.append((node, True))
      stack.extend((d, False) for d in node.deps if d not in seen)
  return list(seen)


def is_free(node: Node) -> bool:
  """Returns whether a node can be evaluated again without a computation of any client."""
  if node.placement is not CLIENTS:
    return True
  return node.free and all(is_free(d) for d in node.deps)
