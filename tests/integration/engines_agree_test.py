"""The graph engine gives the states and metrics that TFF's native context gives."""

import asyncio
import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines, processes
from tff_adaptive import engine


def assert_same_rounds(native, graph, process, cohorts):
  """Runs some rounds in both engines, each with its own state, from the same first state."""
  state = engines.run(native, process.initialize)
  engines.assert_same(engines.run(graph, process.initialize), state, values=False)
  states = {native: state, graph: state}
  for t, cohort in enumerate(cohorts):
    expected = engines.run(native, process.next, states[native], cohort)
    actual = engines.run(graph, process.next, states[graph], cohort)
    engines.assert_same(actual, expected, where=f'round {t}')
    states = {native: expected.state, graph: actual.state}


@pytest.mark.parametrize('name', processes.PROCESSES)
@pytest.mark.sample(1)
def test_learning_process(native, graph, name):
  process = processes.PROCESSES[name]()
  assert_same_rounds(native, graph, process, processes.cohorts())


@pytest.mark.parametrize('name', processes.AGGREGATORS)
@pytest.mark.sample(2)
def test_aggregator(native, graph, name):
  types = tff.types.to_type((tff.types.TensorType(np.float32, (3,)), np.float32))
  process = processes.AGGREGATORS[name]().create(types)
  rng = np.random.default_rng(0)
  updates = [(s * rng.normal(size=3).astype('f'), np.float32(s)) for s in (0.5, 1, 20, 0.1, 2)]
  assert_same_rounds(native, graph, process, [updates[:3], updates[3:]])


def test_k_means(native, graph):
  process = tff.learning.algorithms.build_fed_kmeans(2, (5,), random_seed=(1, 2))
  points = [list(processes.examples(i, 6)['x']) for i in range(3)]
  assert_same_rounds(native, graph, process, [points[:2], points[2:]])


def test_the_number_of_clients_where_no_argument_says_it(native):
  del native  # Its worker is not the only one that the tests end.
  at_clients = tff.FederatedType(np.int32, tff.CLIENTS)
  double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)

  @tff.federated_computation
  def everywhere():
    two = tff.federated_value(2, tff.CLIENTS)
    return tff.federated_sum(two), tff.federated_map(double, two)

  @tff.federated_computation(at_clients)
  def counted(x):
    return tff.federated_sum(tff.federated_value(1, tff.CLIENTS)), x

  theirs = tff.backends.test.create_sync_test_cpp_execution_context(default_num_clients=3)
  ours = engine.GraphContext(default_num_clients=3)
  for computation, arguments in ((everywhere, ()), (counted, ([5, 6],))):
    expected = engines.run(theirs, computation, *arguments)
    engines.assert_same(engines.run(ours, computation, *arguments), expected)
  assert int(expected[0]) == 2  # An argument says otherwise.


class Deferred(tff.framework.Ingestable, tff.framework.CardinalityCarrying):
  """A cohort that is made when an executor asks for it, as of TFF's prefetching data source."""

  type_signature = tff.FederatedType(np.int32, tff.CLIENTS)

  @property
  def cardinality(self):
    return {tff.CLIENTS: 3}

  async def ingest(self, executor):
    await asyncio.sleep(0)
    return await executor.create_value([1, 2, 3], self.type_signature)


def test_values_that_put_themselves_into_an_executor(native, graph):
  """As a whole argument and as a part of one, with a loop that runs already or without one."""
  at_clients = Deferred.type_signature

  @tff.federated_computation(at_clients, tff.FederatedType(np.int32, tff.SERVER))
  def summed(x, y):
    return tff.federated_sum(x), y

  total = tff.federated_computation(lambda x: tff.federated_sum(x), at_clients)

  def both(context):
    return engines.run(context, summed, Deferred(), 5), engines.run(context, total, Deferred())

  async def in_a_loop(context):
    return both(context)

  assert both(native) == ((6, 5), 6)
  for context in (graph, engine.SubroundContext(2, server=graph)):
    assert both(context) == asyncio.run(in_a_loop(context)) == ((6, 5), 6)


def released(metrics):
  manager = tff.program.MemoryReleaseManager()
  asyncio.run(manager.release(metrics['loss'], key=metrics['n']))
  return manager.values()


ORDINARY_LINES = {
  'print': str,
  'product': lambda m: m['loss'] * m['n'],
  'rounded': lambda m: round(m['loss'], 1),
  'formatted': lambda m: f'{m["loss"]:.2f}, {m["n"]:03d}',
  'item': lambda m: m['vector'].sum().item(),
  'a key': lambda m: {m['n']: 'two'}[2],
  'a key of a release manager': released,
  'text': lambda m: m['text'].decode(),
  'texts': lambda m: b', '.join(m['texts'].tolist()),
  'a whole number': lambda m: isinstance(m['n'], np.integer),
  'dtype': lambda m: m['vector'].dtype,
  'of clients': lambda m: [x / 2 for x in m['clients']],
  'of a client': lambda m: m['rows'][1].tolist() + m['rows'][0].tolist(),
}


@tff.tensorflow.computation(np.float32)
def measure(total):
  return collections.OrderedDict(
    loss=total / 3,
    n=tf.constant(2),
    vector=tf.stack([total, 1.0]),
    text=tf.constant('a'),
    texts=tf.constant(['a', 'b']),
  )


@tff.federated_computation(
  tff.FederatedType(np.float32, tff.CLIENTS),
  tff.FederatedType(tff.TensorType(np.float32, [2]), tff.CLIENTS),
)
def measured(x, rows):
  return tff.federated_map(measure, tff.federated_sum(x)), x, rows


def test_what_programs_do_with_results(native, graph):
  """In both engines, and in subrounds."""
  results = []
  for context in (native, graph, engine.SubroundContext(2, server=graph)):
    metrics, clients, rows = engines.run(context, measured, [1.0, 6.5], [[1.0, 2.0], [3.0, 4.0]])
    metrics = {**metrics, 'clients': clients, 'rows': rows}
    results.append(repr({name: line(metrics) for name, line in ORDINARY_LINES.items()}))
  assert results[1] == results[0]
  assert results[2] == results[0]
