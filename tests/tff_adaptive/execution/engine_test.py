"""Single facts about the graph engine: traces, results, refusals, privacy of variables."""

import collections
import concurrent.futures as futures

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.tff_adaptive.execution import computations, engines, processes
from tff_adaptive import algorithms, batching, execution
from tff_adaptive.execution import feeds, round_function, values

FLOAT, VECTOR, NUMBERS = computations.FLOAT, computations.VECTOR, computations.NUMBERS
at_clients, at_server = computations.at_clients, computations.at_server


@pytest.fixture
def traces(monkeypatch):
  """A list that grows by one entry with each trace."""
  counted = []
  trace = round_function.RoundFunction.__call__

  def counting(self, *flat):
    counted.append(self)
    return trace(self, *flat)

  monkeypatch.setattr(round_function.RoundFunction, '__call__', counting)
  return counted


def whole(*clients):
  return [
    [collections.OrderedDict(processes.examples(i, n), client=np.int32(i))] for i, n in clients
  ]


def own_process(name='fed_yogi', **options):
  rates = dict(client_learning_rate=0.1)
  if name == 'fed_yogi':
    rates['server_learning_rate'] = 0.05
  return algorithms.build(
    name, processes.linear_model(), batching=batching.Batching(2), **rates, **options
  )


def test_other_cohort_sizes_and_client_sizes_are_traced_once(traces):
  context, process = execution.GraphContext(), own_process()
  state = engines.run(context, process.initialize)
  del traces[:]
  for cohort in (whole((1, 5), (2, 2)), whole((3, 7)), whole((1, 1), (2, 9), (4, 4)), whole()):
    state = engines.run(context, process.next, state, cohort).state
  assert len(traces) == 1


def test_datasets_and_lists_of_batches_are_traced_once(traces):
  context, process = execution.GraphContext(), processes.fed_avg()
  state = engines.run(context, process.initialize)
  del traces[:]
  for cohort in processes.cohorts():
    state = engines.run(context, process.next, state, cohort).state
  assert len(traces) == 1


def test_an_unknown_intrinsic_is_named(graph):
  type_spec = at_server(FLOAT)
  intrinsic = tff.framework.Intrinsic('federated_wonder', tff.FunctionType(type_spec, type_spec))
  call = tff.framework.Call(intrinsic, tff.framework.Reference('x', type_spec))
  block = tff.framework.Lambda('x', type_spec, call)
  computation = tff.framework.ConcreteComputation.from_building_block(block)
  with pytest.raises(NotImplementedError, match=r'federated_wonder.*native context'):
    engines.run(graph, computation, 1.0)


def test_a_jax_computation_is_named(graph):
  computation = tff.jax.computation(lambda x: x + 1, np.int32)
  with pytest.raises(NotImplementedError, match=r'tff\.jax computation.*native context'):
    engines.run(graph, computation, 1)


def test_clients_of_unknown_number_are_refused(graph):
  everywhere = tff.federated_computation(lambda: tff.federated_value(1, tff.CLIENTS))
  with pytest.raises(NotImplementedError, match='no argument placed there'):
    engines.run(graph, everywhere)


def test_a_sequence_of_the_server_is_read_at_each_level(graph):
  scale = tff.tensorflow.computation(
    lambda d, x: tf.reduce_sum(d.get_single_element()) * x, tff.SequenceType(VECTOR), FLOAT
  )

  @tff.federated_computation(at_server(tff.SequenceType(VECTOR)), at_clients(FLOAT))
  def twice(sequence, x):
    sent = tff.federated_broadcast(sequence)
    total = tff.federated_sum(tff.federated_map(scale, (sent, x)))
    return tff.federated_map(scale, (sent, tff.federated_broadcast(total)))

  assert list(engines.run(graph, twice, [np.ones(3, np.float32)], [1.0, 2.0])) == [27, 27]


def test_client_results_are_as_a_list_and_go_back_as_they_are(graph, monkeypatch):
  double = computations.mapped(lambda x: 2 * x, VECTOR)
  results = engines.run(graph, double, [np.float32([1]), np.float32([]), np.float32([2, 3])])
  assert len(results) == 3
  assert [list(np.asarray(r)) for r in results] == [[2], [], [4, 6]]
  np.testing.assert_array_equal(results[-1], [4, 6])
  np.testing.assert_array_equal(results[:2][0], [2])
  with pytest.raises(IndexError, match='client 3 of 3'):
    results[3]
  with monkeypatch.context() as patch:
    patch.delattr(values.ClientValues, '__getitem__')
    again = engines.run(graph, double, results)
  np.testing.assert_array_equal(again[2], [8, 12])


def test_client_results_of_fixed_shape_are_not_copied(graph):
  results = engines.run(graph, computations.mapped(lambda x: x + 1, FLOAT), [1.0, 2.0])
  monitor = tff.federated_computation(lambda x: tff.federated_sum(x), at_clients(FLOAT))
  _, flat = feeds.prepare(results, monitor.type_signature.parameter)
  assert flat[1] is results.flat[0]


def test_sequences_as_results_go_back(graph):
  shift = computations.mapped(lambda d: d.map(lambda x: x + 1), NUMBERS)
  once = engines.run(graph, shift, [[1, 2], []])
  assert [list(s) for s in engines.run(graph, shift, once)] == [[3, 4], []]


def test_a_random_value_of_a_client_is_drawn_once(graph):
  draw = tff.tensorflow.computation(lambda x: x + tf.random.uniform([]), FLOAT)
  difference = tff.tensorflow.computation(lambda a, b: a - b, FLOAT, FLOAT)

  @tff.federated_computation(at_clients(FLOAT))
  def centred(x):
    drawn = tff.federated_map(draw, x)
    mean = tff.federated_broadcast(tff.federated_mean(drawn))
    return tff.federated_sum(tff.federated_map(difference, (drawn, mean)))

  assert abs(float(engines.run(graph, centred, [0.0, 0.0, 0.0]))) < 1e-6


@pytest.mark.parametrize('parallel_clients', [1, 4])
def test_variables_are_private_to_a_client(parallel_clients):
  @tf.function
  def add_often(v, x):
    for _ in tf.range(200):
      v.assign_add(x)
    return v.read_value()

  def count(x):
    return add_often(tf.Variable(0.0), x)

  context = execution.GraphContext(parallel_clients)
  counts = engines.run(context, computations.mapped(count, FLOAT), [float(i) for i in range(12)])
  assert list(counts) == [200.0 * i for i in range(12)]


@pytest.mark.parametrize('kind', ['mutable', 'dense'])
def test_tables_are_private_to_a_client_and_a_round(graph, kind):
  def repetitions(numbers):
    if kind == 'mutable':
      table = tf.lookup.experimental.MutableHashTable(tf.int32, tf.int32, 0)
    else:
      table = tf.lookup.experimental.DenseHashTable(tf.int32, tf.int32, 0, -1, -2)

    def count(total, number):
      table.insert(number, table.lookup(number) + 1)
      return total + table.lookup(number) - 1

    return numbers.reduce(0, count)

  computation = computations.mapped(repetitions, NUMBERS)
  for _ in range(2):
    assert list(engines.run(graph, computation, [[1, 1, 2], [1, 1, 1], [2, 1]])) == [1, 3, 0]


@pytest.mark.parametrize('name', ['fed_yogi', 'scaffold'])
def test_results_do_not_depend_on_parallel_clients_to_the_bit(name):
  options = dict(num_clients=9) if name == 'scaffold' else {}
  process, outputs = own_process(name, **options), []
  cohort = whole(*((i, 3 + 5 * i % 7) for i in range(8)))
  for parallel_clients in (1, 4):
    context = execution.GraphContext(parallel_clients)
    state, kept = engines.run(context, process.initialize), None
    for _ in range(2):
      if name == 'scaffold':
        kept = kept or [process.initial_client_state] * len(cohort)
        state, kept, metrics = engines.run(context, process.next, state, kept, cohort)
      else:
        state, metrics = engines.run(context, process.next, state, cohort)
    outputs.append((state, kept and list(kept), metrics))
  engines.assert_same(*outputs, rtol=0, atol=0)


def test_keras_models_in_parallel_are_the_same_as_one_by_one():
  process, outputs = processes.PROCESSES['weighted_fed_avg'](), []
  cohort = [processes.dataset(i, 3 + i) for i in range(6)]
  for parallel_clients in (1, 4):
    context = execution.GraphContext(parallel_clients)
    state = engines.run(context, process.initialize)
    outputs.append(engines.run(context, process.next, state, cohort))
  engines.assert_same(*outputs, rtol=0, atol=0)


def test_the_with_form_restores_the_former_context():
  stack = tff.framework.get_context_stack()
  before = stack.current
  with execution.graph_context(parallel_clients=2):
    assert isinstance(stack.current, execution.GraphContext)
  assert stack.current is before
  with pytest.raises(KeyError), execution.graph_context():
    raise KeyError
  assert stack.current is before


@pytest.mark.parametrize('options', [dict(parallel_clients=0), dict(clients_per_step=0)])
def test_options_out_of_range_are_refused(options):
  with pytest.raises(ValueError, match='must be at least 1'):
    execution.GraphContext(**options)


def test_several_threads_share_a_context(graph):
  double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)

  def doubled_sum(computation, numbers):
    return int(engines.run(graph, computation, numbers))

  made = [
    tff.federated_computation(
      lambda x: tff.federated_sum(tff.federated_map(double, x)),
      tff.FederatedType(np.int32, tff.CLIENTS),
    )
    for _ in range(3)
  ]
  cohorts = [list(range(n)) for n in (1, 2, 5, 9)] * 3
  with futures.ThreadPoolExecutor(6) as pool:
    work = [(c, numbers) for c in made for numbers in cohorts]
    found = list(pool.map(lambda pair: doubled_sum(*pair), work))
  assert found == [2 * sum(numbers) for _, numbers in work]
