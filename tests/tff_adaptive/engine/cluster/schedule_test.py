"""Cohorts are divided evenly, from the cohort alone, and sums are merged in one order."""

import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from tff_adaptive.engine.cluster import schedule

COSTS = st.lists(st.integers(1, 1000), min_size=1, max_size=40)


@pytest.mark.exhaustive
@hypothesis.given(costs=COSTS, subrounds=st.integers(1, 9))
def test_every_client_is_in_one_subround_and_none_is_empty(costs, subrounds):
  parts = schedule.divide(costs, subrounds)
  assert len(parts) == min(subrounds, len(costs))
  assert all(parts)
  assert all(part == sorted(part) for part in parts)
  assert sorted(itertools.chain.from_iterable(parts)) == list(range(len(costs)))


@hypothesis.given(costs=COSTS, subrounds=st.integers(1, 9))
def test_no_subround_is_ahead_of_another_by_more_than_one_client(costs, subrounds):
  """As the greedy order gives it: without its smallest client none is the costliest."""
  parts = schedule.divide(costs, subrounds)
  costs_of_parts = [list(map(costs.__getitem__, part)) for part in parts]
  least = min(map(sum, costs_of_parts))
  for of_part in costs_of_parts:
    assert sum(of_part) - min(of_part) <= least


def test_the_largest_goes_first_to_the_least_loaded():
  assert schedule.divide([1, 7, 3, 5, 2], 2) == [[1, 4], [0, 2, 3]]
  assert schedule.divide([0, 0, 0, 0], 2) == [[0, 2], [1, 3]]  # By their number.


def test_neighbours_cost_as_much_as_other_neighbours():
  parts = schedule.divide([8, 7, 6, 5, 4, 3], 6)  # A client each.
  assert parts == [[0], [5], [1], [4], [2], [3]]
  parts = schedule.divide([1] * 10, 4)  # 3, 3, 2 and 2 clients.
  assert [len(part) for part in parts] == [3, 2, 3, 2]


def _taken(costs, workers, worthwhile=0.0):
  waiting = schedule.Waiting(costs)
  tree = schedule.MergeTree(len(costs))
  nodes = []
  while waiting:
    nodes.append(waiting.take(workers, worthwhile))
  return waiting, [list(tree.leaves(node)) for node in nodes], nodes


@hypothesis.given(costs=COSTS, workers=st.integers(1, 9), worthwhile=st.floats(0, 5000))
def test_each_subround_is_taken_once_and_parts_fit(costs, workers, worthwhile):
  waiting, parts, nodes = _taken(costs, workers, worthwhile)
  assert sorted(itertools.chain.from_iterable(parts)) == list(range(len(costs)))
  # With more than one, none is far above an even share: all workers have something to do.
  share = 1.25 * sum(costs) / workers
  for node, part in zip(nodes, parts, strict=True):
    cost = sum(costs[i] for i in part)
    assert waiting.cost(node) == cost
    assert len(part) == 1 or cost <= share


def test_parts_are_large_at_first_and_small_at_last():
  _, parts, _ = _taken([1] * 16, workers=2)
  assert [len(part) for part in parts] == [4, 2, 2, 2, 1, 1, 1, 1, 1, 1]


def test_short_calls_are_joined_until_each_worker_has_one():
  assert _taken([5, 5, 5, 5], workers=2, worthwhile=1000)[1] == [[0, 1], [2, 3]]
  assert _taken([5, 5, 5, 5], workers=4, worthwhile=1000)[1] == [[0], [1], [2], [3]]
  assert _taken([5, 5, 5, 5], workers=1, worthwhile=10)[1] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
  'leaves, expected',
  [(1, 'a'), (2, '(ab)'), (3, '((ab)c)'), (5, '(((ab)(cd))e)'), (6, '(((ab)(cd))(ef))')],
)
def test_neighbours_are_merged_level_by_level(leaves, expected):
  names = 'abcdef'[:leaves]
  tree = schedule.MergeTree(leaves)
  known = {(0, i): name for i, name in enumerate(names)}
  assert tree.fold(known, lambda one, other: f'({one}{other})') == expected

  def value(node):
    if not node[0]:
      return names[node[1]]
    children = tree.children(node)
    assert all(tree.parent(child) == node for child in children)
    if len(children) == 1:
      return value(children[0])
    return f'({"".join(map(value, children))})'

  assert value(tree.root) == expected


@pytest.mark.parametrize(
  'resources, needed, expected',
  [
    ({'CPU': 5.0}, (2, 0), 2),
    ({'CPU': 8.0, 'GPU': 2.0}, (1, 0.25), 8),
    ({'CPU': 6.0, 'GPU': 2.0}, (1, 0.25), 6),
    ({'CPU': 99.0, 'GPU': 3.0}, (1, 0.05), 60),
    ({'CPU': 99.0, 'GPU': 2.0}, (1, 0.6), 2),
    ({'CPU': 8.0, 'GPU': 3.0}, (1, 2), 1),
    ({'CPU': 8.0}, (1, 0.5), 0),
    ({'GPU': 2.0}, (1, 1), 0),
    ({'CPU': 8.0, 'memory': 7e9}, (1, 0, 2 * 10**9), 3),
    ({'CPU': 2.0, 'memory': 7e9}, (1, 0, 2 * 10**9), 2),
  ],
)
def test_room_is_what_processors_gpus_and_memory_allow(resources, needed, expected):
  assert schedule.room(resources, *needed) == expected
