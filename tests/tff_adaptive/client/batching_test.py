"""A client's arrays, and which examples are in which local step: order, seeds, padding."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive._utils import seeds
from tff_adaptive.client import Batching, batching, client_arrays

SEED = tf.constant([3, 4], tf.int32)
CONTINUED = {'batch_size': 4, 'local_steps': 3, 'continue_batches': True}


def _epochs(spec, n, seed=SEED):
  """For each epoch the examples that count, in order, as a list of lists of steps."""
  plan = batching.plan(spec, tf.zeros([n, 2]), seed, SEED)
  steps = []
  shares, sizes = plan.shares_and_sizes()
  np.testing.assert_array_equal(sizes, plan.sizes)
  for indices, size, row in zip(plan.indices.numpy(), plan.sizes.numpy(), shares.numpy()):
    assert size == len(indices) or plan.is_padded
    np.testing.assert_allclose(row, (np.arange(len(indices)) < size) / max(size, 1))
    assert set(indices) <= set(range(n))
    steps.append(list(indices[:size]))
  assert len(steps) == spec.epochs * (-(-n // spec.batch_size) if spec.batch_size else n > 0)
  each = len(steps) // spec.epochs
  return [steps[e * each : (e + 1) * each] for e in range(spec.epochs)]


@pytest.mark.parametrize('n, size', [(1, 4), (4, 4), (7, 3), (9, 3), (10, 1), (10, 99), (13, None)])
@pytest.mark.parametrize('shuffle', [True, False])
def test_each_epoch_visits_each_example_once(n, size, shuffle):
  for steps in _epochs(Batching(size, epochs=3, shuffle=shuffle), n):
    visited = [*itertools.chain.from_iterable(steps)]
    assert sorted(visited) == list(range(n))
    if not shuffle:
      assert visited == list(range(n))
    full = size or n
    sizes = [full] * (n // full)
    if n % full:
      sizes.append(n % full)
    assert [len(step) for step in steps] == sizes


def test_orders_differ_between_epochs_and_seeds_and_are_equal_for_equal_seeds():
  spec = Batching(5, epochs=4)

  def orders():
    texts = []
    for t, client in itertools.product((1, 2), (0, 1)):
      texts += map(str, _epochs(spec, 20, seeds.fold(SEED, t, client)))
    return texts

  first = orders()
  assert len(set(first)) == len(first) == 16
  assert orders() == first


def test_units_stay_together_and_in_order_and_are_shuffled():
  lengths = [1, 3, 2, 4, 1, 2]
  owner = np.repeat(np.arange(6), lengths)
  starts = tf.constant(np.diff(owner, prepend=-1) != 0)
  spec = Batching(4, epochs=30, unit_starts=lambda x: x)
  plan = batching.plan(spec, starts, SEED, SEED)
  indices = np.reshape(plan.indices, [30, -1])[:, : len(owner)]
  orders = set()
  for order in indices:
    assert sorted(order) == list(range(len(owner)))
    for unit in range(6):
      at = np.flatnonzero(owner[order] == unit)
      assert list(np.diff(at)) == [1] * (lengths[unit] - 1)
      assert list(np.diff(order[at])) == [1] * (lengths[unit] - 1)
    orders.add(tuple(order))
  assert len(orders) > 25


def test_the_last_batch_is_filled_from_the_same_client():
  spec = Batching(4, epochs=200, fill_last=True)
  drawn = collections.Counter()
  for steps in _epochs(spec, 6):
    assert [len(step) for step in steps] == [4, 4]
    visited = [*itertools.chain.from_iterable(steps)]
    assert sorted(visited[:6]) == list(range(6))
    drawn.update(visited[6:])
  assert set(drawn) == set(range(6))
  for options in ({'fill_last': True}, {'with_replacement': True}):
    assert _epochs(Batching(2, epochs=20, **options), 1)  # Only the one that there is.


def test_a_client_without_examples_has_no_steps():
  for spec in (Batching(4, epochs=2), Batching(4, fill_last=True), Batching(None, epochs=3)):
    assert _epochs(spec, 0)[0] == []


@pytest.mark.parametrize('limit, steps', [(0, 0), (1, 1), (5, 5), (6, 6), (99, 6), (-1, 0)])
def test_the_first_steps_of_a_plan_are_those_of_the_whole(limit, steps):
  whole = batching.plan(Batching(4, epochs=2), tf.zeros([11, 3]), SEED, SEED)
  first = whole.first(tf.constant(limit))
  np.testing.assert_array_equal(first.indices, whole.indices[:steps])
  np.testing.assert_array_equal(first.sizes, whole.sizes[:steps])
  assert len(first.indices) == steps


@pytest.mark.sample(2)
@pytest.mark.parametrize(
  'n, size, fill', [(10, 4, False), (10, 4, True), (3, 4, False), (8, 2, False)]
)
def test_rounds_go_on_with_the_passes_where_the_last_one_stopped(n, size, fill):
  spec = Batching(size, local_steps=7, continue_batches=True, fill_last=fill)
  plans = [batching.continued(spec, tf.zeros([n, 2]), SEED, tf.constant(t)) for t in (1, 2, 3, 4)]
  steps = []
  for plan in plans:
    steps += [list(row[:k]) for row, k in zip(plan.indices.numpy(), plan.sizes)]
  assert [len(plan.indices) for plan in plans] == [7] * 4
  each = -(-n // size)
  starts = range(0, 28 - 28 % each, each)
  passes = [[*itertools.chain.from_iterable(steps[i : i + each])] for i in starts]
  assert all(sorted(examples[:n]) == list(range(n)) for examples in passes)
  assert len({str(examples) for examples in passes}) > min(len(passes), 6) / 2
  if fill:
    last = size
  else:
    last = n - (each - 1) * size
  assert [len(step) for step in steps] == ([size] * (each - 1) + [last]) * (28 // each) + (
    [size] * (28 % each)
  )
  # Round 3 needs no other round, and comes after so many steps that 32 bits do not hold them.
  late = batching.continued(spec, tf.zeros([n, 2]), SEED, tf.constant(2**31 - 1))
  assert len(late.indices) == 7
  assert len(batching.continued(spec, tf.zeros([0, 2]), SEED, tf.constant(3)).indices) == 0


PASSES = 'continue_batches needs passes to go on with: give batch'


@pytest.mark.parametrize(
  'options, words',
  [
    ({'batch_size': 4, 'continue_batches': True}, PASSES),
    ({'batch_size': None, 'local_steps': 3, 'continue_batches': True}, PASSES),
    ({**CONTINUED, 'random_local_steps': True}, PASSES),
    ({**CONTINUED, 'with_replacement': True}, PASSES),
    ({'batch_size': 4, 'random_local_steps': True}, 'random_local_steps needs local_steps'),
    ({**CONTINUED, 'random_local_steps': True, 'step_limits': True}, 'not go with step_limits'),
    ({'batch_size': None, 'with_replacement': True}, 'with_replacement needs batch_size'),
    ({'batch_size': 0}, 'batch_size must be at least 1'),
    ({'batch_size': 2.5}, 'batch_size must be a whole number'),
    ({'batch_size': 2, 'epochs': 0}, 'epochs must be at least 1'),
    ({'batch_size': 2, 'epochs': 2**31}, 'epochs must be at most 2147483647'),
    ({'batch_size': 2**20 + 1}, 'at most 1048576, found 1048577: give None for all'),
  ],
)
def test_wrong_sizes_are_named(options, words):
  with pytest.raises((TypeError, ValueError), match=words):
    Batching(**options)
  assert Batching(20) == Batching(20, epochs=1, shuffle=True, fill_last=False, step_limits=False)


def test_the_order_is_that_of_stream_1_and_the_filling_that_of_stream_2():
  """A resumed run, and one of an earlier version, draws the same."""
  plan = batching.plan(Batching(4, epochs=2, fill_last=True), tf.zeros([6, 1]), SEED, SEED)
  keys = tf.random.stateless_uniform([2, 6], seeds.fold(SEED, 1))
  filling = tf.random.stateless_uniform([2, 2], seeds.fold(SEED, 2), maxval=6, dtype=tf.int32)
  wanted = np.concatenate([np.argsort(keys, axis=1, kind='stable'), filling], 1)
  np.testing.assert_array_equal(plan.indices, wanted.reshape([4, 4]))


@pytest.mark.parametrize('n, sizes', [(3, [3] * 7), (6, [4, 2] * 3 + [4]), (0, [])])
def test_local_steps_are_drawn_on_over_as_many_passes_as_that_takes(n, sizes):
  plan = batching.plan(Batching(4, local_steps=7), tf.zeros([n, 2]), SEED, SEED)
  assert plan.sizes.numpy().tolist() == sizes
  visited = np.concatenate([row[:k] for row, k in zip(plan.indices.numpy(), sizes)] or [[]])
  for start in range(0, len(visited) - n + 1, max(n, 1)):
    assert sorted(visited[start : start + n]) == list(range(n))


def test_drawn_local_steps_are_those_of_a_geometric_distribution_the_same_for_all_clients():
  spec = Batching(None, local_steps=4, random_local_steps=True)
  rounds = [seeds.fold(SEED, t) for t in range(400)]
  drawn = np.array([int(spec.drawn_steps(r)) for r in rounds])
  for k in (1, 2, 3):
    assert np.mean(drawn == k) == pytest.approx(0.25 * 0.75 ** (k - 1), abs=0.06)
  assert np.mean(drawn) == pytest.approx(4, abs=0.4)
  assert int(Batching(None, local_steps=1, random_local_steps=True).drawn_steps(SEED)) == 1
  for client in (5, 6):
    plan = batching.plan(spec, tf.zeros([3, 2]), seeds.fold(SEED, client), rounds[0])
    assert len(plan.sizes) == drawn[0]


def test_examples_may_be_drawn_with_replacement():
  plan = batching.plan(
    Batching(5, local_steps=200, with_replacement=True), tf.zeros([5, 2]), SEED, SEED
  )
  counts = [len(set(row)) for row in plan.indices.numpy()]
  assert min(counts) < 5
  np.testing.assert_allclose(np.bincount(np.ravel(plan.indices)) / 1000, 0.2, atol=0.06)


X = np.arange(6.0).reshape(3, 2)
Y = np.arange(3)


@pytest.mark.parametrize('steps', [None, 0, 5])
def test_a_client_is_a_dataset_of_one_element(steps):
  (element,) = client_arrays(X, Y, 7, steps)
  names = ['x', 'y', 'client']
  if steps is not None:
    names.append('max_steps')
  assert list(element) == names
  assert (element['x'] is X, element['y'] is Y) == (True, True)
  for name, value in (('client', 7), ('max_steps', steps)):
    if value is not None:
      assert (element[name], element[name].dtype) == (value, np.int32)


def test_what_does_not_fit_is_refused():
  for x, y, words in ((X[:2], Y, '2 inputs but 3'), (X, Y[:2], '3 inputs but 2')):
    with pytest.raises(ValueError, match=f'client 7 has {words} labels: give one'):
      client_arrays(x, y, 7)
  for steps in (-1, 2**31):
    with pytest.raises(ValueError, match=r'max_steps must be at .*: give client 7 0 or more'):
      client_arrays(X, Y, 7, max_steps=steps)
  for client in (-(2**31) - 1, 2**31):
    with pytest.raises(ValueError, match=rf'client must be at .* found {client}: give the client'):
      client_arrays(X, Y, client)
