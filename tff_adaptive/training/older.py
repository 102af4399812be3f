"""Stores the older models of a run with `synchrony`, each in a numbered slot.

Each model is stored separately, so that none is copied when another comes or goes. A step gets only
the models that its clients began with. In a checkpoint they are stacked.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tree


class Slots:
  """One leaf of the older models, which NumPy sees as an array [slots, ...].

  Attributes:
    rows: The value of each slot, [1, ...].
  """

  def __init__(self, rows: Sequence[np.ndarray]):
    self.rows = tuple(rows)

  def __array__(self, dtype: Any = None) -> np.ndarray:
    return np.concatenate(self.rows, dtype=dtype)


def apart(state: Any, num: int) -> Any:
  """Splits the older models of a loaded server state into `num` slots; new slots are zero."""

  def rows(stack: Any) -> Slots:
    stack = np.asarray(stack)
    zero = np.zeros((1, *stack.shape[1:]), stack.dtype)
    found = [stack[i : i + 1] for i in range(min(num, len(stack)))]
    return Slots([*found, *[zero] * (num - len(found))])

  return state._replace(distributor=tree.map_structure(rows, state.distributor))


def together(state: Any) -> Any:
  """Returns the server state with the older models stacked."""
  return state._replace(distributor=tree.map_structure(np.asarray, state.distributor))


def given(state: Any, needed: Sequence[int]) -> Any:
  """Returns the server state for a step, with a stack of the models in the needed slots."""

  def stacked(leaf: Slots) -> Any:
    rows = [leaf.rows[slot] for slot in needed]
    if len(rows) == 1:
      return rows[0]
    return np.concatenate(rows) if rows else leaf.rows[0][:0]

  return state._replace(distributor=tree.map_structure(stacked, state.distributor))


def kept(state: Any, older: Any, slot: int) -> Any:
  """Returns the state after a step with all older models; the model before it goes to `slot`."""

  def put(leaf: Slots, row: Any) -> Slots:
    rows = leaf.rows
    return Slots([*rows[:slot], np.asarray(row), *rows[slot + 1 :]]) if slot >= 0 else leaf

  flat = map(put, tree.flatten(older), tree.flatten(state.distributor))
  return state._replace(distributor=tree.unflatten_as(older, list(flat)))
