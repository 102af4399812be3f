"""The orders of a shuffle with a buffer: tf.data's, in distribution."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive.client import batching, buffered_shuffle

SEED = tf.constant([5, 6], tf.int32)


def _orders(n, size, count=4000):
  return buffered_shuffle.orders(tf.constant(n), size, count, SEED).numpy()


@pytest.mark.parametrize('n, size', [(0, 3), (1, 3), (2, 1), (5, 2), (7, 3), (7, 7), (7, 99)])
def test_each_order_has_each_element_and_none_comes_before_it_is_in_the_buffer(n, size):
  orders = _orders(n, size, 50)
  assert orders.shape == (50, n)
  for order in orders:
    assert sorted(order) == list(range(n))
    assert all(element < place + size for place, element in enumerate(order))
  if size == 1:
    assert (orders == np.arange(n)).all()


def _probabilities(n, size):
  """Of each order, by the definition: each draw takes one of those in the buffer."""
  found = collections.Counter()

  def draw(drawn, left, probability):
    if not left:
      found[drawn] += probability
    for element in left[:size]:
      rest = tuple(e for e in left if e != element)
      draw((*drawn, element), rest, probability / min(size, len(left)))

  draw((), tuple(range(n)), 1.0)
  return found


@pytest.mark.parametrize('n, size, bound', [(4, 2, 24.3), (4, 3, 40.8), (4, 4, 49.7)])
def test_orders_are_as_probable_as_by_the_definition(n, size, bound):
  """Chi-squared below its 99.9 % for as many orders as there are."""
  expected = _probabilities(n, size)
  counts = collections.Counter(map(tuple, _orders(n, size)))
  assert set(counts) <= set(expected)
  assert sum((counts[o] - 4000 * p) ** 2 / (4000 * p) for o, p in expected.items()) < bound


def test_elements_move_as_far_as_with_tf_data():
  n, size, count = 30, 6, 4000
  dataset = tf.data.Dataset.range(n).shuffle(size, seed=1).repeat(count).batch(n)
  theirs = np.stack([order.numpy() for order in dataset])
  ours = _orders(n, size, count)
  for of in (lambda o: o.argsort(1).mean(0), lambda o: o.argsort(1).std(0)):
    np.testing.assert_allclose(of(ours), of(theirs), atol=0.35)
  assert np.abs(ours.argsort(1).mean(0) - np.arange(n)).max() > 1  # They do move.


def test_units_are_drawn_from_the_buffer_whole():
  lengths = [1, 3, 2, 4, 1, 2]
  owner = np.repeat(np.arange(6), lengths)
  starts = tf.constant(np.diff(owner, prepend=-1) != 0)
  spec = batching.Batching(4, epochs=40, unit_starts=lambda x: x, shuffle_buffer=2)
  indices = np.reshape(batching.plan(spec, starts, SEED, SEED).indices, [40, -1])[:, : len(owner)]
  seen = set()
  for order in indices:
    units = [unit for unit, _ in itertools.groupby(owner[order])]
    assert sorted(units) == list(range(6))
    assert all(unit < place + 2 for place, unit in enumerate(units))
    for unit in range(6):
      assert list(np.diff(order[owner[order] == unit])) == [1] * (lengths[unit] - 1)
    seen.add(tuple(units))
  assert len(seen) > 15


def test_examples_are_units_and_a_client_without_any_has_no_step():
  spec = batching.Batching(3, epochs=2, shuffle_buffer=1)
  plan = batching.plan(spec, tf.zeros([4, 2]), SEED, SEED)
  assert plan.indices.numpy()[[0, 2]].tolist() == [[0, 1, 2], [0, 1, 2]]
  for starts in (None, lambda x: tf.ones_like(x[:, 0], tf.bool)):
    spec = batching.Batching(3, unit_starts=starts, shuffle_buffer=2)
    assert batching.plan(spec, tf.zeros([0, 2]), SEED, SEED).indices.shape == (0, 3)
