"""How a cohort is divided into subrounds, in which order sums are merged, and room for workers.

The first two follow from the cohort alone: who is fast today, or dies, changes no bit of a result.
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
  """How many workers a node of a Ray cluster has room for.

  Args:
    resources: What it has, by Ray's names: 'CPU', 'GPU' and 'memory'.
    cpus: Processors of each.
    gpus: GPUs of each, or a part of one GPU.
    memory: Bytes of each.
  """
  rooms = [resources.get('CPU', 0) // cpus]
  if memory:
    rooms.append(resources.get('memory', 0) // memory)
  if gpus:
    there = int(resources.get('GPU', 0))
    # A part is of one GPU: two of 0.6 need two. In floating point 1 // 0.1 is 9.
    rooms.append(there * int(1 / gpus + 1e-9) if gpus < 1 else there // gpus)
  return int(min(rooms))


def divide(costs: Sequence[float], subrounds: int) -> list[list[int]]:
  """Divides clients into subrounds of even cost: the costliest first, to the least loaded.

  Args:
    costs: What each client of the cohort costs, in examples.
    subrounds: Into how many parts; with fewer clients there are as many parts as clients.

  Returns:
    The clients' positions in the cohort, ascending, for each subround; none is empty. Neighbours,
    whose sums are merged first, cost about as much as any other two together.
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
  order = [falling[i // 2] if i % 2 == 0 else falling[-1 - i // 2] for i in range(len(parts))]
  return [sorted(parts[part]) for part in order]


class MergeTree:
  """The tree by which sums are merged: neighbours, pair by pair, level by level.

  A node is (level, position); the leaves, (0, subround), are the subrounds' sums.
  """

  def __init__(self, leaves: int):
    self._sizes = [leaves]
    while self._sizes[-1] > 1:
      self._sizes.append((self._sizes[-1] + 1) // 2)

  @property
  def root(self) -> tuple[int, int]:
    """The node of the sum of all."""
    return len(self._sizes) - 1, 0

  def leaves(self, node: tuple[int, int]) -> range:
    """The subrounds of which a node is the sum."""
    level, position = node
    return range(position << level, min((position + 1) << level, self._sizes[0]))

  def parent(self, node: tuple[int, int]) -> tuple[int, int]:
    """The node above."""
    return node[0] + 1, node[1] // 2

  def children(self, node: tuple[int, int]) -> list[tuple[int, int]]:
    """The two nodes of which one is made; one alone where a level's last has no neighbour."""
    level, position = node[0] - 1, 2 * node[1]
    return [(level, p) for p in (position, position + 1) if p < self._sizes[level]]

  def fold(
    self,
    known: Mapping[tuple[int, int], Value],
    merge: Callable[[Value, Value], Value],
    node: tuple[int, int] | None = None,
  ) -> Value:
    """The value of a node, by default of the root, made of those below it that are known."""
    node = node or self.root
    if node in known:
      return known[node]
    return functools.reduce(merge, (self.fold(known, merge, c) for c in self.children(node)))


class Waiting:
  """The subrounds that nobody trains yet, as nodes of the merge tree.

  A worker is given a node: it trains the subrounds below it one after another and returns one sum.
  Large nodes come first, small ones last, so that all workers end at about the same time.
  """

  def __init__(self, costs: Sequence[float]):
    self._tree = MergeTree(len(costs))
    self._before = [0.0, *itertools.accumulate(costs)]  # What the subrounds before one cost.
    self._total = self._left = self._before[-1]
    self._nodes = [(-self._total, self._tree.root)]  # A heap, the costliest first.

  def __bool__(self) -> bool:
    return bool(self._nodes)

  def cost(self, node: tuple[int, int]) -> float:
    """The cost of a node's subrounds together."""
    leaves = self._tree.leaves(node)
    return self._before[leaves.stop] - self._before[leaves.start]

  def take(self, workers: int, worthwhile: float) -> tuple[int, int]:
    """The next node: the costliest there is, of about half of an even share of what is left.

    One of less cost than `worthwhile` is worth no call of its own, unless workers had none then.
    """
    most = max(min(worthwhile, _UNEVEN * self._total / workers), self._left / workers / 2)
    while True:
      _, node = heapq.heappop(self._nodes)
      if not node[0] or self.cost(node) <= most:
        self._left -= self.cost(node)
        return node
      for child in self._tree.children(node):
        heapq.heappush(self._nodes, (-self.cost(child), child))
