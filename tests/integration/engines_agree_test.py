"""The graph engine gives the states and metrics that TFF's native context gives."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.helpers import engines, processes
from tff_adaptive import algorithms, engine
from tff_adaptive.client import ClientTraining, batching


def assert_same_rounds(native, graph, process, cohorts, part=lambda output: output, **tolerances):
  """Runs some rounds in both engines, each with its own state, from the same first state.

  The numbers of a part of what each round gives are compared.
  """
  state = engines.run(native, process.initialize)
  engines.assert_same(engines.run(graph, process.initialize), state, values=False)
  states = {native: state, graph: state}
  for t, cohort in enumerate(cohorts):
    expected = engines.run(native, process.next, states[native], cohort)
    found = engines.run(graph, process.next, states[graph], cohort)
    engines.assert_same(found, expected, where=f'round {t}', values=False)
    engines.assert_same(part(found), part(expected), where=f'round {t}', **tolerances)
    states = {native: expected.state, graph: found.state}


@pytest.mark.parametrize('name', processes.PROCESSES)
def test_learning_process(native, graph, name):
  process = processes.PROCESSES[name]()
  assert_same_rounds(native, graph, process, processes.cohorts())


def test_compression_up_to_its_quantization_step(native, graph):
  compressed = tff.aggregators.EncodedSumFactory.quantize_above_threshold(8, threshold=2)
  process = processes.fed_avg(model_aggregator=tff.aggregators.MeanFactory(compressed))

  def weights(output):
    return output.state.global_model_weights

  # The rounding is random; an update lies in [-1, 1], so that a step is at most 2 / 255, of which
  # the server takes a tenth. (Rounding may turn a prediction, and so an accuracy, over.)
  assert_same_rounds(native, graph, process, processes.cohorts(), weights, atol=0.004)


def test_k_means(native, graph):
  process = tff.learning.algorithms.build_fed_kmeans(2, (processes.FEATURES,), random_seed=(1, 2))
  points = [list(processes.examples(i, 6)['x']) for i in range(3)]
  assert_same_rounds(native, graph, process, [points[:2], points[2:]])


def test_preprocessing_with_a_table(native, graph):
  process = processes.preprocessed()
  cohorts = [[['yes', 'no', 'yes'], ['no']], [['perhaps', 'yes']]]
  assert_same_rounds(native, graph, process, cohorts)


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


RATES = dict(client_learning_rate=0.1, server_learning_rate=0.05)
WHOLE = [
  processes.whole(*clients) for clients in ([(1, 5), (2, 2), (3, 7)], [(4, 1), (3, 7)], [(5, 2)])
]


def test_own_stateless_process_with_whole_arrays(native, graph):
  process = algorithms.build(
    'fed_yogi',
    processes.linear_model(),
    training=ClientTraining(batching=batching.Batching(2, epochs=2)),
    **RATES,
  )
  assert_same_rounds(native, graph, process, WHOLE)


def stateful_rounds(context, process, state, cohorts):
  """Rounds of a stateful process; the states of a round go to the same places in the next."""
  outputs, client_states = [], []
  for cohort in cohorts:
    if len(cohort) != len(client_states):
      first = [process.initial_client_state] * len(cohort)
      client_states = (list(client_states) + first)[: len(cohort)]
    state, client_states, metrics = engines.run(context, process.next, state, client_states, cohort)
    outputs.append((state, list(client_states), metrics))
  return outputs


@pytest.mark.parametrize('form', ['whole', 'batches'])
def test_own_stateful_process(native, graph, form):
  if form == 'whole':
    process = algorithms.build(
      'scaffold',
      processes.linear_model(),
      num_clients=6,
      client_learning_rate=0.1,
      training=ClientTraining(batching=batching.Batching(2)),
    )
    cohorts = [WHOLE[0], WHOLE[0], WHOLE[1]]
  else:
    process = algorithms.build('ada_best', processes.keras_model, client_learning_rate=0.1)
    cohorts = [processes.cohorts()[0], processes.cohorts()[2], processes.cohorts()[1]]
  state = engines.run(native, process.initialize)
  expected = stateful_rounds(native, process, state, cohorts)
  engines.assert_same(stateful_rounds(graph, process, state, cohorts), expected)
