"""Stores an asynchronous run's older models, with which clients still train, in numbered slots.

The slots are in `distributor` of the server state, each as an array, so that replacing one copies
no other. A step gets only the slots that its clients need, as a stack; a checkpoint has all slots.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tree


class Slots:
  """One of the model's weights in all older models; NumPy converts it to an array [slots, ...].

  Attributes:
    rows: The weight in each slot, an array [1, ...].
  """

  def __init__(self, rows: Sequence[np.ndarray]):
    self.rows = tuple(rows)

  def __array__(self, dtype: Any = None) -> np.ndarray:
    return np.concatenate(self.rows, dtype=dtype)


def apart(state: Any, num: int) -> Any:
  """Returns the server state with its stack of older models as `num` slots; added ones are 0."""

  def rows(stack: Any) -> Slots:
    stack = np.asarray(stack)
    zero = np.zeros((1, *stack.shape[1:]), stack.dtype)
    found = [stack[i : i + 1] for i in range(min(num, len(stack)))]
    return Slots([*found, *[zero] * (num - len(found))])

  return state._replace(distributor=tree.map_structure(rows, state.distributor))


def together(state: Any) -> Any:
  """Returns the server state with all slots joined to one stack; the inverse of `apart`."""
  return state._replace(distributor=tree.map_structure(np.asarray, state.distributor))


def given(state: Any, needed: Sequence[int]) -> Any:
  """Returns the server state for a step, with a `distributor` that stacks only `needed` slots."""

  def stacked(leaf: Slots) -> Any:
    rows = [leaf.rows[slot] for slot in needed]
    if len(rows) == 1:
      return rows[0]
    return np.concatenate(rows) if rows else leaf.rows[0][:0]

  return state._replace(distributor=tree.map_structure(stacked, state.distributor))


def kept(state: Any, older: Any, slot: int) -> Any:
  """Returns the server state after a step, with the slots of `older` back in `distributor`.

  There the process has left the model before the step. `slot` gets this model unless `slot` is -1.
  """

  def put(leaf: Slots, row: Any) -> Slots:
    rows = leaf.rows
    return Slots([*rows[:slot], np.asarray(row), *rows[slot + 1 :]]) if slot >= 0 else leaf

  flat = map(put, tree.flatten(older), tree.flatten(state.distributor))
  return state._replace(distributor=tree.unflatten_as(older, list(flat)))
