"""Facts about batches: full gradients of any size, labels that match inputs."""

import collections

import numpy as np
import pytest
import tensorflow as tf

import oracle
from tests.helpers import small_problem
from tff_adaptive import models
from tff_adaptive.client import Batching, batch_sources, model_adapters


def _data(n):
  rng = np.random.default_rng(n)
  return rng.normal(size=(n, 5)).astype(np.float32), rng.integers(3, size=n).astype(np.int32)


# The usual loss times the number of the batch's examples.
COUPLED = dict(
  example_loss=lambda z, y, counts: models.sparse_cross_entropy(z, y) * float(len(counts)),
  couples_examples=True,
  metrics={},
)


@pytest.mark.parametrize('n', [1, 23, 512, 513, 600, 1300])
def test_the_full_gradient_is_the_mean_over_all_examples(n):
  """Of whole arrays, and of a dataset, whose batches are weighed by their size."""
  parts = COUPLED if n == 600 else {}
  model = model_adapters.wrap(small_problem.model(**parts))
  x, y = _data(n)
  if n == 23:
    data = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(20)
    source = batch_sources.Batches(model, 0, data, 1)
  else:
    element = {'x': tf.constant(x), 'y': tf.constant(y), 'client': 0}
    source = batch_sources.WholeArrays(model, Batching(20), 0, element, 1)
  theta = tuple(tf.constant(w, tf.float32) for w in oracle.unpack(small_problem.theta_0()))
  gradient = oracle.pack(source.mean_gradient(theta, ()))
  expected = oracle.gradient(small_problem.theta_0().astype(np.float64), x, y)
  np.testing.assert_allclose(gradient / (n if parts else 1), expected, atol=1e-6)
  assert float(source.count_examples()) == n
  counted = source.run(lambda state, local: state + 1, tf.constant(0))
  assert [int(value) for value in counted] == [-(-n // 20), -(-n // 20), n]


def test_rows_of_several_inputs_stay_together():
  """The rows of nested inputs and labels hold their number; a batch has the same of each."""
  rows = tf.range(11)
  x = collections.OrderedDict(
    a=rows[:, tf.newaxis] * [1, 10], b=(2 * rows, tf.cast(rows, tf.float32))
  )
  element = {'x': x, 'y': {'one': rows, 'two': -rows}, 'client': 3}
  model = model_adapters.wrap(lambda: small_problem.keras_model(hidden=False))
  source = batch_sources.WholeArrays(model, Batching(4, 2), 0, element, 1)
  seen = []
  for i in range(int(source.steps)):
    batch = source._local_step(tf.constant(i)).batch
    row = batch['y']['one'].numpy()
    seen.extend(row)
    np.testing.assert_array_equal(batch['x']['a'], np.stack([row, 10 * row], 1))
    np.testing.assert_array_equal(batch['x']['b'][0], 2 * row)
    np.testing.assert_array_equal(batch['x']['b'][1], row)
    np.testing.assert_array_equal(batch['y']['two'], -row)
  assert sorted(seen) == sorted([*range(11)] * 2)
  element['x']['b'] = (2 * rows, tf.range(10.0))
  with pytest.raises(tf.errors.InvalidArgumentError, match='not as many labels as inputs'):
    batch_sources.WholeArrays(model, Batching(2), 0, element, 1)


@pytest.mark.parametrize('labels', [3, 5])
def test_inputs_and_labels_of_unequal_number_are_refused(labels):
  x = _data(4)[0]
  y = _data(labels)[1]
  model = model_adapters.wrap(small_problem.model())
  element = {'x': tf.constant(x), 'y': tf.constant(y), 'client': 7}
  with pytest.raises(tf.errors.InvalidArgumentError, match='not as many labels as inputs'):
    batch_sources.WholeArrays(model, Batching(2), 0, element, 1)
  with tf.Graph().as_default() as graph:  # As TFF's: nothing runs but what is asked for.
    element = {'x': tf.constant(x), 'y': tf.constant(y), 'client': 7}
    source = batch_sources.WholeArrays(model, Batching(2), 0, element, 1)
  with (
    tf.compat.v1.Session(graph=graph) as session,
    pytest.raises(tf.errors.InvalidArgumentError, match='not as many labels as inputs'),
  ):
    session.run(source.num_examples)


@pytest.mark.parametrize(
  'values', [[True, False, False], ['a', 'b', 'c'], [1.5, 2.5, 4.0], [1, 2, 4]]
)
def test_batches_without_a_clients_number_differ_by_what_they_hold(values):
  def fingerprint(held):
    return int(batch_sources._fingerprint({'x': tf.constant(held), 'y': tf.zeros([3])}))

  assert fingerprint(values) == fingerprint(values)
  assert fingerprint(values) != fingerprint([values[1], *values[1:]])


def test_a_group_weighs_its_clients_examples_each_by_its_own_batch():
  sizes = (7, 3)
  elements = [
    {'x': tf.constant(x), 'y': tf.constant(y), 'client': c}
    for c, (x, y) in enumerate(map(_data, sizes))
  ]
  model = model_adapters.wrap(small_problem.model())
  group = batch_sources.GroupOfArrays(model, Batching(4), 0, elements, 1)
  for i, present in enumerate([(4, 3), (3, 0)]):
    shares, counts = group._local_step(tf.constant(i))[1]
    expected = [[1 / max(n, 1)] * n + [0.0] * (4 - n) for n in present]
    np.testing.assert_allclose(shares, expected)
    np.testing.assert_array_equal(counts, present)


def test_a_clients_order_follows_from_seed_round_and_client():
  model = model_adapters.wrap(small_problem.model())
  x, y = _data(11)

  def order(seed, round_number, client):
    element = {'x': tf.constant(x), 'y': tf.constant(y), 'client': tf.constant(client)}
    source = batch_sources.WholeArrays(model, Batching(4), seed, element, round_number)
    return str(source.plan.indices.numpy())

  given = [(5, 1, 0), (6, 1, 0), (5, 1, 1), (5, 1, 2), (5, 2, 0), (5, 3, 0)]
  orders = [order(*numbers) for numbers in given]
  assert len(set(orders)) == len(given)
  assert orders == [order(*numbers) for numbers in given]


def test_one_read_of_a_dataset_follows_the_other():
  with tf.Graph().as_default() as graph:
    source = batch_sources.Batches(None, 0, tf.data.Dataset.range(5).batch(2), tf.constant(1))
    source.count_examples(), source.count_examples()
  first, second = (o for o in graph.get_operations() if o.type == 'ReduceDataset')
  assert (first.control_inputs, second.control_inputs) == ([], [first])
