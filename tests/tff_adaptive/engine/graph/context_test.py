"""Single facts about the graph engine: traces, options, threads, nodes, what each level reads."""

import concurrent.futures as futures
import gc
import itertools
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines, processes, small_problem
from tff_adaptive import engine
from tff_adaptive.engine.graph import nodes, round_function

FLOAT = computations.FLOAT
VECTOR = computations.VECTOR
at_clients = computations.at_clients
at_server = computations.at_server


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


def test_other_cohorts_and_runs_are_traced_once_and_groups_by_their_size(traces):
  """A group is traced client by client; a later, larger cohort gets the groups asked for."""
  process = processes.own('fed_avg', build_model=small_problem.linear_model)
  results = []
  one = [(3, 7)]
  two = [(1, 5), (2, 2)]
  three = [(1, 1), (2, 9), (4, 4)]
  for options, number in (({}, 2), ({'clients_per_step': 16}, 3)):
    context = engine.GraphContext(**options)
    del traces[:]
    for cohorts in ([] if options else [three, []], [one, two, one]):
      state = engines.run(context, process.initialize)
      for clients in cohorts:
        state = engines.run(context, process.next, state, processes.whole(*clients)).state
    assert len(traces) == number  # Of `initialize`, and of `next` for each size of a group.
    results.append([np.asarray(w) for w in state.global_model_weights.trainable])
  for alone, grouped in zip(*results):
    np.testing.assert_allclose(grouped, alone, rtol=1e-6)


def test_rounds_leave_nothing_in_memory():
  process = processes.own('ada_best', build_model=small_problem.linear_model)
  context = engine.GraphContext()
  state = engines.run(context, process.initialize)
  cohort = processes.whole(*((i, 2) for i in range(10)))
  client_states = [process.initial_client_state] * 10

  def rounds(number):
    nonlocal state, client_states
    for _ in range(number):
      state, after, _ = engines.run(context, process.next, state, client_states, cohort)
      client_states = [tf.nest.map_structure(np.asarray, one) for one in after]
    gc.collect()
    return sys.getallocatedblocks()

  blocks = rounds(50)
  grown = []
  # What results hold if it is not freed is 50 a round; caches that fill up take some, and what else
  # this process has goes on meanwhile: a leak is there each time.
  while len(grown) < 3 and min(grown, default=10) >= 10:
    before = blocks
    blocks = rounds(100)
    grown.append((blocks - before) / 100)
  assert min(grown) < 10


@pytest.mark.exhaustive
def test_what_was_traced_of_a_computation_goes_with_it():
  context = engine.GraphContext()

  def new_computation():
    @tff.tensorflow.computation(np.float32)
    def compute(x):
      return x + 1

    return engines.run(context, compute, 1.0)

  def num_graphs():
    gc.collect()
    return sum(isinstance(one, tf.Graph) for one in gc.get_objects())

  new_computation()
  before = num_graphs()
  for _ in range(3):
    assert new_computation() == 2
  # A call forgets those before it.
  assert num_graphs() <= before


def test_operations_may_wait_for_an_argument(graph):
  @tff.tensorflow.computation(np.float32, np.float32, tff.SequenceType(np.float32))
  def compute(x, y, values):
    value = values.get_single_element()
    with tf.control_dependencies([x, value, tf.debugging.assert_greater(y, 0.0)]):
      return x, y, tf.identity(y) + 1, tf.constant(2.0)

  assert [*engines.run(graph, compute, 5.0, 1.0, [7.0])] == [5, 1, 2, 2]
  with pytest.raises(tf.errors.InvalidArgumentError):
    engines.run(graph, compute, 5.0, -1.0, [7.0])


def test_datasets_and_lists_of_batches_are_traced_once(traces):
  batches = tff.types.tensorflow_to_type(small_problem.SPEC)
  count = computations.mapped(
    lambda data: data.reduce(0, lambda n, batch: n + tf.shape(batch['x'])[0]),
    tff.SequenceType(batches),
  )
  context = engine.GraphContext()
  counts = [list(engines.run(context, count, cohort)) for cohort in processes.cohorts()]
  assert counts == [[5, 2, 7], [7, 1]]
  assert len(traces) == 1


def test_the_with_form_restores_the_former_context():
  stack = tff.framework.get_context_stack()
  before = stack.current
  with engine.graph_context(parallel_clients=2):
    assert isinstance(stack.current, engine.GraphContext)
  assert stack.current is before


@pytest.mark.parametrize(
  'name, value', [('parallel_clients', 0), ('clients_per_step', 0), ('default_num_clients', -1)]
)
def test_options_out_of_range_are_refused(name, value):
  with pytest.raises(ValueError, match=f'{name} must be at least {value + 1}, found {value}'):
    engine.GraphContext(**{name: value})


def test_several_threads_share_a_context(graph):
  double = tff.tensorflow.computation(lambda x: 2 * x, np.int32)

  def doubled_sum(computation, numbers):
    return int(engines.run(graph, computation, numbers))

  comps = [
    tff.federated_computation(
      lambda x: tff.federated_sum(tff.federated_map(double, x)),
      tff.FederatedType(np.int32, tff.CLIENTS),
    )
    for _ in range(2)
  ]
  cohorts = [list(range(n)) for n in (1, 2, 5, 9)] * 3
  with futures.ThreadPoolExecutor(6) as pool:
    work = [*itertools.product(comps, cohorts)]
    results = list(pool.map(lambda pair: doubled_sum(*pair), work))
  assert results == [2 * sum(numbers) for _, numbers in work]


def test_an_unknown_intrinsic_is_named(graph):
  type_spec = at_server(FLOAT)
  intrinsic = tff.framework.Intrinsic('federated_wonder', tff.FunctionType(type_spec, type_spec))
  call = tff.framework.Call(intrinsic, tff.framework.Reference('x', type_spec))
  block = tff.framework.Lambda('x', type_spec, call)
  computation = tff.framework.ConcreteComputation.from_building_block(block)
  with pytest.raises(NotImplementedError, match=r'federated_wonder.*native context'):
    engines.run(graph, computation, 1.0)


def node(*deps, placement=tff.CLIENTS, free=False):
  return nodes.Node(placement, FLOAT, list(deps), None, 0, free)


def test_a_long_chain_is_no_recursion_and_only_parameters_and_messages_are_free():
  chain = [node()]
  for _ in range(3000):
    chain.append(node(chain[-1]))
  assert nodes.reachable([chain[-1]]) == chain
  parameter = node(free=True)
  computed = node(parameter)
  assert nodes.is_free(parameter)
  assert nodes.is_free(node(parameter, node(placement=tff.SERVER), free=True))
  assert not nodes.is_free(computed)
  assert not nodes.is_free(node(computed, free=True))


def test_clients_of_unknown_number_are_refused(graph):
  everywhere = tff.federated_computation(lambda: tff.federated_value(1, tff.CLIENTS))
  with pytest.raises(NotImplementedError, match=r'no argument placed there.*default_num_clients'):
    engines.run(graph, everywhere)


def test_a_dataset_as_an_accumulator(native, graph):
  collected, total = computations.collected()
  expected = engines.run(native, collected, [1.0, 2.0, 3.0])
  for parallel_clients in (1, 4):
    collection = engines.run(engine.GraphContext(parallel_clients), collected, [1.0, 2.0, 3.0])
    assert list(collection) == [0, 2, 4, 6]
    engines.assert_same(collection, expected)
  for context in (graph, engine.SubroundContext(2, server=graph)):
    assert engines.run(context, total, [1.0, 2.0, 3.0]) == 12


def test_a_sequence_of_the_server_is_read_at_each_level(graph):
  scale = tff.tensorflow.computation(
    lambda d, x: tf.reduce_sum(d.get_single_element()) * x, tff.SequenceType(VECTOR), FLOAT
  )

  @tff.federated_computation(at_server(tff.SequenceType(VECTOR)), at_clients(FLOAT))
  def twice(sequence, x):
    received = tff.federated_broadcast(sequence)
    total = tff.federated_sum(tff.federated_map(scale, (received, x)))
    return tff.federated_map(scale, (received, tff.federated_broadcast(total)))

  assert list(engines.run(graph, twice, [np.ones(3, np.float32)], [1.0, 2.0])) == [27, 27]


def test_a_random_value_of_a_client_is_drawn_once(graph):
  draw = tff.tensorflow.computation(lambda x: x + tf.random.uniform([]), FLOAT)
  difference = tff.tensorflow.computation(lambda a, b: a - b, FLOAT, FLOAT)

  @tff.federated_computation(at_clients(FLOAT))
  def centred(x):
    drawn = tff.federated_map(draw, x)
    mean = tff.federated_broadcast(tff.federated_mean(drawn))
    return tff.federated_sum(tff.federated_map(difference, (drawn, mean)))

  assert abs(float(engines.run(graph, centred, [0.0, 0.0, 0.0]))) < 1e-6
