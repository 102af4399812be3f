"""Stores the older models of a run, with which its clients still train, in numbered slots.

They are in the field `older` of the server state. Between the steps each slot has an array of its
own, so that replacing one model copies no other. A step gets only the models that its clients need,
as a stack; a checkpoint has all slots.
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

  def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    if copy is False:
      raise ValueError('slots become an array only as a copy.')
    return np.concatenate(self.rows, dtype=dtype)


def in_slots(state: Any, num_slots: int) -> Any:
  """Returns the server state with its stack of older models as slots; added ones are 0."""

  def split(stack: Any) -> Slots:
    stack = np.asarray(stack)
    rows = [stack[i : i + 1] for i in range(min(num_slots, len(stack)))]
    zero = np.zeros((1, *stack.shape[1:]), stack.dtype)
    rows.extend([zero] * (num_slots - len(rows)))
    return Slots(rows)

  return state._replace(older=tree.map_structure(split, state.older))


def as_stack(state: Any) -> Any:
  """Returns the server state with all slots joined to one stack; the inverse of `in_slots`."""
  return state._replace(older=tree.map_structure(np.asarray, state.older))


def before_step(state: Any, needed: Sequence[int]) -> Any:
  """Returns the server state for a step, with a stack of only the models in the `needed` slots."""

  def stack(leaf: Slots) -> np.ndarray:
    rows = [leaf.rows[slot] for slot in needed]
    if not rows:  # All clients of the step began with the present model.
      return leaf.rows[0][:0]
    if len(rows) == 1:
      return rows[0]  # Without a copy.
    return np.concatenate(rows)

  return state._replace(older=tree.map_structure(stack, state.older))


def after_step(state: Any, slots: Any, slot: int) -> Any:
  """Returns the server state after a step, with the older models in slots again.

  Args:
    state: The state after the step, in which the process has left the model before the step.
    slots: The older models before the step, in slots.
    slot: The slot that gets the model before the step; -1 for none.
  """
  if slot < 0:
    return state._replace(older=slots)

  def put(leaf: Slots, row: Any) -> Slots:
    return Slots([*leaf.rows[:slot], np.asarray(row), *leaf.rows[slot + 1 :]])

  leaves = map(put, tree.flatten(slots), tree.flatten(state.older))
  return state._replace(older=tree.unflatten_as(slots, list(leaves)))
