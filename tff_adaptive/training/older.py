"""Stores the older models of an asynchronous run, each in a numbered slot.

They are in `distributor` of the server state, each stored by itself, so that replacing one copies
no other. A step gets a stack of those with which its clients began; a checkpoint has all of them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tree


class Slots:
  """One weight of all older models, which NumPy converts to an array [slots, ...].

  Attributes:
    rows: The weight in each slot, an array [1, ...].
  """

  def __init__(self, rows: Sequence[np.ndarray]):
    self.rows = tuple(rows)

  def __array__(self, dtype: Any = None) -> np.ndarray:
    return np.concatenate(self.rows, dtype=dtype)


def apart(state: Any, num: int) -> Any:
  """Splits the stack of older models of a server state into `num` slots; added slots are zero."""

  def rows(stack: Any) -> Slots:
    stack = np.asarray(stack)
    zero = np.zeros((1, *stack.shape[1:]), stack.dtype)
    found = [stack[i : i + 1] for i in range(min(num, len(stack)))]
    return Slots([*found, *[zero] * (num - len(found))])

  return state._replace(distributor=tree.map_structure(rows, state.distributor))


def together(state: Any) -> Any:
  """Returns the server state with a stack of all older models."""
  return state._replace(distributor=tree.map_structure(np.asarray, state.distributor))


def given(state: Any, needed: Sequence[int]) -> Any:
  """Returns the server state for a step, with a stack of the older models in the `needed` slots."""

  def stacked(leaf: Slots) -> Any:
    rows = [leaf.rows[slot] for slot in needed]
    if len(rows) == 1:
      return rows[0]
    return np.concatenate(rows) if rows else leaf.rows[0][:0]

  return state._replace(distributor=tree.map_structure(stacked, state.distributor))


def kept(state: Any, older: Any, slot: int) -> Any:
  """Returns the server state after a step, with all models of `older` again.

  The model before the step, which `state.distributor` is, replaces the one in `slot`, if not -1.
  """

  def put(leaf: Slots, row: Any) -> Slots:
    rows = leaf.rows
    return Slots([*rows[:slot], np.asarray(row), *rows[slot + 1 :]]) if slot >= 0 else leaf

  flat = map(put, tree.flatten(older), tree.flatten(state.distributor))
  return state._replace(distributor=tree.unflatten_as(older, list(flat)))
