"""Cohorts are divided evenly, from the cohort alone, and sums are merged in one order."""

import hypothesis
import pytest
from hypothesis import strategies as st

from tff_adaptive.execution.cluster import schedule

COSTS = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


@hypothesis.given(costs=COSTS, subrounds=st.integers(1, 9))
def test_every_client_is_in_one_subround_and_none_is_empty(costs, subrounds):
  parts = schedule.divide(costs, subrounds)
  assert len(parts) == min(subrounds, len(costs))
  assert all(parts)
  assert all(part == sorted(part) for part in parts)
  assert sorted(i for part in parts for i in part) == list(range(len(costs)))


@hypothesis.given(costs=COSTS, subrounds=st.integers(1, 9))
def test_no_subround_is_ahead_of_another_by_more_than_one_client(costs, subrounds):
  """As the greedy order gives it: without its smallest client none is the costliest."""
  parts = schedule.divide(costs, subrounds)
  loads = [sum(costs[i] for i in part) for part in parts]
  for part, load in zip(parts, loads):
    assert load - min(costs[i] for i in part) <= min(loads)


def test_the_largest_goes_first_to_the_least_loaded():
  assert schedule.divide([1, 7, 3, 5, 2], 2) == [[1, 4], [0, 2, 3]]
  assert schedule.divide([0, 0, 0, 0], 2) == [[0, 2], [1, 3]]  # By their number.
  assert schedule.costliest_first([1, 7, 3, 5, 2], [[0], [1, 4], [2, 3]]) == [1, 2, 0]


@pytest.mark.parametrize(
  'leaves, expected',
  [(1, 'a'), (2, '(ab)'), (3, '((ab)c)'), (5, '(((ab)(cd))e)'), (6, '(((ab)(cd))(ef))')],
)
def test_neighbours_are_merged_level_by_level(leaves, expected):
  names = 'abcdef'[:leaves]
  tree = schedule.MergeTree(leaves)
  assert tree.fold(names, lambda one, other: f'({one}{other})') == expected

  def value(node):
    if not node[0]:
      return names[node[1]]
    children = tree.children(node)
    assert all(tree.parent(child) == node for child in children)
    return value(children[0]) if len(children) == 1 else f'({"".join(map(value, children))})'

  assert value(tree.root) == expected


def test_subrounds_are_checked():
  with pytest.raises(ValueError, match='subrounds is 0; it must be at least 1'):
    schedule.check_subrounds(0)
