"""The older models of a run that does not wait, as the server state keeps them between steps.

Each is kept by itself: none is copied when another one comes or goes, and a step is given those
that its clients began with, and no more. In a checkpoint they are stacked.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tree


class Slots:
  """One leaf of the older models: NumPy takes it as an array [slots, ...].

  Attributes:
    rows: Of each slot its value, [1, ...].
  """

  def __init__(self, rows: Sequence[np.ndarray]):
    self.rows = tuple(rows)

  def __array__(self, dtype: Any = None) -> np.ndarray:
    return np.concatenate(self.rows, dtype=dtype)


def apart(state: Any, num: int) -> Any:
  """A server state as it was loaded, with `num` slots; new ones are zero."""

  def rows(stack: Any) -> Slots:
    stack = np.asarray(stack)
    zero = np.zeros((1, *stack.shape[1:]), stack.dtype)
    found = [stack[i : i + 1] for i in range(min(num, len(stack)))]
    return Slots([*found, *[zero] * (num - len(found))])

  return state._replace(distributor=tree.map_structure(rows, state.distributor))


def together(state: Any) -> Any:
  """The server state with the older models stacked."""
  return state._replace(distributor=tree.map_structure(np.asarray, state.distributor))


def given(state: Any, needed: Sequence[int]) -> Any:
  """The server state that a step is given, with the models of some slots, stacked in order."""

  def stacked(leaf: Slots) -> Any:
    rows = [leaf.rows[slot] for slot in needed]
    if len(rows) == 1:
      return rows[0]
    return np.concatenate(rows) if rows else leaf.rows[0][:0]

  return state._replace(distributor=tree.map_structure(stacked, state.distributor))


def kept(state: Any, older: Any, slot: int) -> Any:
  """The state after a step, with the older models before it; its own goes to a slot, -1 to none."""

  def put(leaf: Slots, row: Any) -> Slots:
    rows = leaf.rows
    return Slots([*rows[:slot], np.asarray(row), *rows[slot + 1 :]]) if slot >= 0 else leaf

  flat = map(put, tree.flatten(older), tree.flatten(state.distributor))
  return state._replace(distributor=tree.unflatten_as(older, list(flat)))
