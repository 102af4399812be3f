"""Divides a cohort into parts (subrounds), orders the merges of their sums, and counts workers.

Subrounds and merges depend on the cohort only: the loss of workers changes no bit of a result.
"""

import functools
import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

DEFAULT_SUBROUNDS = 4
_UNEVEN = 1.25  # A part may cost this multiple of an even share, because clients differ in size.

Value = TypeVar('Value')


def room(resources: Mapping[str, float], cpus: int, gpus: float, memory: int = 0) -> int:
  """Returns how many workers a node of a Ray cluster has room for.

  Args:
    resources: The node's resources, by Ray's names: 'CPU', 'GPU' and 'memory'.
    cpus: Processors of a worker.
    gpus: GPUs of a worker, or a fraction of one GPU.
    memory: Bytes of memory of a worker.
  """
  rooms = [resources.get('CPU', 0) // cpus]
  if memory:
    rooms.append(resources.get('memory', 0) // memory)
  if gpus:
    node_gpus = int(resources.get('GPU', 0))
    if gpus < 1:
      # A fraction is of one GPU, so two workers with 0.6 need two GPUs. Rounding: 1 // 0.1 is 9.0.
      rooms.append(node_gpus * int(1 / gpus + 1e-9))
    else:
      rooms.append(node_gpus // gpus)
  return int(min(rooms))


def divide(costs: Sequence[float], subrounds: int) -> list[list[int]]:
  """Divides a cohort into parts of similar cost (subrounds), by placing costly clients first.

  Args:
    costs: The cost of each client of the cohort, in examples.
    subrounds: The number of parts, or the number of clients if that is smaller.

  Returns:
    The clients' positions in the cohort, ascending, for each subround; none is empty. Subrounds are
    ordered so that pairs of neighbours, which are merged first, have similar costs.
  """
  # Equal costs keep the cohort's order, equal loads that of the subrounds; a client without
  # examples still counts as a client, so that no subround stays empty.
  loads = [(0.0, 0, part) for part in range(min(subrounds, len(costs)))]
  parts: list[list[int]] = [[] for _ in loads]
  for client in sorted(range(len(costs)), key=lambda i: -costs[i]):
    load, count, part = heapq.heappop(loads)
    parts[part].append(client)
    heapq.heappush(loads, (load + costs[client], count + 1, part))
  falling = [part for _, _, part in sorted(loads, key=lambda load: (-load[0], load[2]))]
  order: list[int] = []
  while falling:  # The costliest that is left, then the cheapest: each such pair is merged first.
    order.append(falling.pop(0))
    if falling:
      order.append(falling.pop())
  return [sorted(parts[part]) for part in order]


class MergeTree:
  """A binary tree with the order in which the sums of `leaves` subrounds are merged.

  A node is (level, position). The leaves, (0, subround), are the subrounds' sums.
  """

  def __init__(self, leaves: int):
    self._sizes = [leaves]
    while self._sizes[-1] > 1:
      self._sizes.append((self._sizes[-1] + 1) // 2)

  @property
  def root(self) -> tuple[int, int]:
    """The root, whose value is the sum of all subrounds."""
    return len(self._sizes) - 1, 0

  def leaves(self, node: tuple[int, int]) -> range:
    """Returns the subrounds below a node."""
    level, position = node
    # A node of level L has 2^L leaves below it; the last of a level may have fewer.
    return range(position << level, min((position + 1) << level, self._sizes[0]))

  def parent(self, node: tuple[int, int]) -> tuple[int, int]:
    """Returns the parent of a node."""
    return node[0] + 1, node[1] // 2

  def children(self, node: tuple[int, int]) -> list[tuple[int, int]]:
    """Returns the two children of a node, or one if the last node of a level has no neighbour."""
    level = node[0] - 1
    first = 2 * node[1]
    return [(level, position) for position in (first, first + 1) if position < self._sizes[level]]

  def fold(
    self,
    known: Mapping[tuple[int, int], Value],
    merge: Callable[[Value, Value], Value],
    node: tuple[int, int] | None = None,
  ) -> Value:
    """Returns the value of a node, by default the root, merged from `known` values below it."""
    node = node or self.root
    if node in known:
      return known[node]
    of_children = (self.fold(known, merge, child) for child in self.children(node))
    return functools.reduce(merge, of_children)


class Waiting:
  """A queue of the `MergeTree` nodes whose subrounds, parts of a cohort, no worker has taken.

  `costs` has each subround's cost in examples. A worker takes a node, trains the subrounds below it
  one by one, and returns their sum. Costly nodes come first, so that workers end together.
  """

  def __init__(self, costs: Sequence[float]):
    self._tree = MergeTree(len(costs))
    self._before = [0.0, *itertools.accumulate(costs)]  # The cost of all subrounds before each.
    self._total = self._before[-1]
    self._left = self._total  # The cost of the subrounds that no worker has taken.
    self._nodes = [(-self._total, self._tree.root)]  # A heap, the costliest first.

  def __bool__(self) -> bool:
    return bool(self._nodes)

  def cost(self, node: tuple[int, int]) -> float:
    """Returns the total cost of the subrounds below a node."""
    leaves = self._tree.leaves(node)
    return self._before[leaves.stop] - self._before[leaves.start]

  def take(self, workers: int, worthwhile: float) -> tuple[int, int]:
    """Removes and returns the costliest node, split until it is within a limit or a subround.

    The limit is the remaining cost / `workers` / 2. `worthwhile`, the least cost that is worth a
    call, raises it, but to at most 1.25 times the total cost / `workers`: others need work, too.
    """
    most = max(min(worthwhile, _UNEVEN * self._total / workers), self._left / workers / 2)
    while True:
      _, node = heapq.heappop(self._nodes)
      if not node[0] or self.cost(node) <= most:
        self._left -= self.cost(node)
        return node
      for child in self._tree.children(node):
        heapq.heappush(self._nodes, (-self.cost(child), child))
