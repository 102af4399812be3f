"""Older models of a run are in slots; a step gets some of them, and leaves a new one."""

import collections

import numpy as np
import pytest

from tff_adaptive.asynchrony import older_models

State = collections.namedtuple('State', 'older')
STATE = State([np.arange(6.0).reshape(3, 2)])
TWO_SLOTS = older_models.in_slots(STATE, 2)


def _rows(state):
  return np.asarray(state.older[0]).tolist()


def test_slots_are_added_or_left_out():
  more = older_models.as_stack(older_models.in_slots(STATE, 4))
  assert _rows(more) == [[0, 1], [2, 3], [4, 5], [0, 0]]
  assert _rows(older_models.as_stack(TWO_SLOTS)) == [[0, 1], [2, 3]]


@pytest.mark.parametrize('needed, rows', [([], []), ([1], [[2, 3]]), ([1, 0], [[2, 3], [0, 1]])])
def test_a_step_gets_the_models_it_needs(needed, rows):
  assert _rows(older_models.before_step(TWO_SLOTS, needed)) == rows


@pytest.mark.parametrize(
  'slot, rows', [(-1, [[0, 1], [2, 3]]), (0, [[8, 9], [2, 3]]), (1, [[0, 1], [8, 9]])]
)
def test_the_model_before_a_step_goes_into_its_slot(slot, rows):
  left = State([np.array([[8.0, 9.0]])])
  after = older_models.after_step(left, TWO_SLOTS.older, slot)
  assert _rows(older_models.as_stack(after)) == rows
  assert _rows(TWO_SLOTS) == [[0, 1], [2, 3]]
