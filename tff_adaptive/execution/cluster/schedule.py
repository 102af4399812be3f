"""How a cohort is divided into subrounds, and in which order their sums are merged.

Both follow from the cohort alone: who is fast today, or dies, changes no bit of a result.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

DEFAULT_SUBROUNDS = 4

Value = TypeVar('Value')


def check_subrounds(subrounds: int) -> None:
  """Raises ValueError for a number of subrounds below 1."""
  if subrounds < 1:
    raise ValueError(f'subrounds is {subrounds}; it must be at least 1: give 4, say')


def divide(costs: Sequence[float], subrounds: int) -> list[list[int]]:
  """Divides clients into subrounds of even cost: the costliest first, to the least loaded.

  Args:
    costs: What each client of the cohort costs, in examples.
    subrounds: Into how many parts; with fewer clients there are as many parts as clients.

  Returns:
    The clients' positions in the cohort, ascending, for each subround; none is empty.
  """
  # Equal costs keep the cohort's order, equal loads that of the subrounds; a client without
  # examples still counts as a client, so that no subround stays empty.
  loads = [(0.0, 0, part) for part in range(min(subrounds, len(costs)))]
  parts: list[list[int]] = [[] for _ in loads]
  for client in sorted(range(len(costs)), key=lambda i: -costs[i]):
    load, count, part = heapq.heappop(loads)
    parts[part].append(client)
    heapq.heappush(loads, (load + costs[client], count + 1, part))
  return [sorted(part) for part in parts]


def costliest_first(costs: Sequence[float], parts: Sequence[Sequence[int]]) -> list[int]:
  """The order in which subrounds are begun: by their cost, the highest first."""
  return sorted(range(len(parts)), key=lambda p: -sum(costs[i] for i in parts[p]))


class MergeTree:
  """Which sums are merged with which: neighbours, pair by pair, level by level.

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

  def parent(self, node: tuple[int, int]) -> tuple[int, int]:
    """The node above."""
    return node[0] + 1, node[1] // 2

  def children(self, node: tuple[int, int]) -> list[tuple[int, int]]:
    """The two nodes of which one is made; one alone where a level's last has no neighbour."""
    level, position = node[0] - 1, 2 * node[1]
    return [(level, p) for p in (position, position + 1) if p < self._sizes[level]]

  def fold(self, values: Sequence[Value], merge: Callable[[Value, Value], Value]) -> Value:
    """The value of the root, merged here."""
    level = list(values)
    while len(level) > 1:
      pairs = [level[i : i + 2] for i in range(0, len(level), 2)]
      level = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0]
