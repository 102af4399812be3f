"""Workers run the clients of a round: equal results, what crosses the wire, wrong addresses."""

import collections
import concurrent.futures as futures
import contextlib
import socket
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from scripts.benchmarking import mergeable
from tests.tff_adaptive import small_problem
from tests.tff_adaptive.execution import computations, on_workers
from tff_adaptive import algorithms, batching, execution, models
from tff_adaptive.execution import connections

COHORTS = ([0, 1, 2, 3, 4, 5, 6], [4], [5, 0, 2])  # Also fewer clients than workers.
EXAMPLES = tff.types.SequenceType(
  collections.OrderedDict(
    x=tff.types.TensorType(np.float32, [None, 5]), y=tff.types.TensorType(np.int32, [None])
  )
)


def _process(name, model=None):
  options = {'fed_yogi': {'server_learning_rate': 0.1}, 'scaffold': {'num_clients': 7}}
  return algorithms.build(
    name,
    model or small_problem.model(),
    client_learning_rate=0.1,
    batching=batching.Batching(4, 2),
    **options.get(name, {}),
  )


def _run(process):
  return small_problem.Run(process, small_problem.clients()).rounds(COHORTS)


def _values(run):
  return [np.asarray(v) for v in tf.nest.flatten([run.state, run.kept, run.metrics])]


@pytest.mark.parametrize('name', ['fed_yogi', 'scaffold'])
def test_one_two_and_four_workers_give_the_same_bits_and_what_the_graph_engine_gives(name, workers):
  process = _process(name)
  runs = []
  for count in (1, 2, 4):
    with on_workers.context(workers.addresses[:count]):
      runs.append(_values(_run(process)))
  with execution.graph_context():
    alone = _values(_run(process))
  for several in runs[1:]:
    np.testing.assert_equal(several, runs[0])
  assert len(alone) == len(runs[0])
  for ours, expected in zip(runs[0], alone):
    np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-6)


def test_equal_to_the_native_context(workers):
  process = _process('ada_best')
  with on_workers.context(workers.addresses[:2]):
    ours = _values(_run(process))
  native = tff.backends.native.create_sync_local_cpp_execution_context()
  with tff.framework.get_context_stack().install(native):
    expected = _values(_run(process))
  for one, other in zip(ours, expected):
    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize('name', ['fed_yogi', 'ada_best'])
def test_equal_to_tffs_context_of_mergeable_computations(name, workers):
  process = _process(name)
  with on_workers.context(workers.addresses[:2]):
    ours = _values(_run(process))
  # One worker: TFF joins clients' results in the order in which several end.
  with tff.framework.get_context_stack().install(mergeable.context(workers.addresses[:1])):
    expected = _values(_run(process))
  assert len(ours) == len(expected)
  for one, other in zip(ours, expected):
    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_a_random_value_of_no_place_is_one_value_everywhere(workers):
  draw = tff.tensorflow.computation(lambda: tf.random.uniform([]))
  add = tff.tensorflow.computation(lambda x, s: tf.cast(x, tf.float32) + s, (np.int32, np.float32))

  @tff.federated_computation(on_workers.AT_CLIENTS)
  def comp(x):
    drawn = draw()
    pairs = tff.federated_zip((x, tff.federated_value(drawn, tff.CLIENTS)))
    masked = tff.federated_map(add, pairs)
    return masked, tff.federated_sum(masked), tff.federated_value(drawn, tff.SERVER)

  with on_workers.context(workers.addresses[:2]):
    masked, total, drawn = comp([0] * 6)
    again = comp([0])[2]
  np.testing.assert_array_equal(masked, [drawn] * 6)
  np.testing.assert_allclose(total, 6 * drawn, rtol=1e-6)
  assert again != drawn


def test_what_is_passed_on_is_checked_too(workers):
  comp = tff.federated_computation(
    lambda x, y, z: (x, tff.federated_sum(z), y),
    on_workers.AT_CLIENTS,
    tff.types.FederatedType((np.int32, np.float32), tff.SERVER),
    on_workers.AT_CLIENTS,
  )
  with on_workers.context(workers.addresses[:1]):
    passed, total, pair = comp([1, np.int32(2)], (3, 1), [4, 5])
    assert [type(x) for x in passed] == [np.int32] * 2
    assert (list(passed), total, list(pair)) == ([1, 2], 9, [3, 1])
    assert pair[1].dtype == np.float32
    for first, second in (([1.5, 'x'], (3, 1)), ([1, 2], (1.5, 1))):
      with pytest.raises(TypeError, match='expected a tensor of type int32'):
        comp(first, second, [4, 5])


@pytest.mark.parametrize('count', [1, 3, 4, 11])
def test_client_values_come_back_in_order_for_uneven_cohorts(count, workers):
  with on_workers.context(workers.addresses):
    total, doubled = on_workers.double_and_sum()(list(range(count)))
  assert list(doubled) == [2 * i for i in range(count)]
  assert total == count * (count - 1)


def test_no_clients_and_computations_of_the_server_run_without_workers(workers):
  with on_workers.context(workers.addresses[:1]) as context:
    before = context.bytes_sent
    total, doubled = on_workers.double_and_sum()([])
    assert context.bytes_sent == before
  assert (total, len(doubled)) == (0, 0)


@pytest.mark.parametrize(
  'type_spec, misfit',
  [
    (on_workers.INT, [1.5, 2]),
    (on_workers.INT, [2**40 + 3, 1]),
    (on_workers.INT, [np.int64(2**40 + 3), 1]),
    (on_workers.INT, [True, 1]),
    (tff.types.TensorType(np.float32, [2]), [np.ones(3, np.float32)]),
    (tff.types.SequenceType(on_workers.INT), [[1.5], [2]]),
    (tff.types.SequenceType(on_workers.INT), [[np.int64(2**40 + 3)], [2]]),
    (tff.types.SequenceType(on_workers.INT), [3, [2]]),
    (tff.types.SequenceType(on_workers.INT), [tf.data.Dataset.from_tensors(1.5), [2]]),
    (EXAMPLES, [[dict(x=np.ones([1, 5]), y=np.int32([1]))]]),
    (EXAMPLES, [[dict(x=np.ones([1, 5], np.float32), y=np.float32([1.7]))]]),
  ],
)
def test_what_does_not_fit_is_refused_in_the_words_of_the_graph_engine(type_spec, misfit, workers):
  comp = computations.mapped(lambda x: tf.constant(0), type_spec)
  with on_workers.context(workers.addresses[:1]), pytest.raises(TypeError) as here:
    comp(misfit)
  with execution.graph_context(), pytest.raises(TypeError) as there:
    comp(misfit)
  found, wanted = (str(e.value).replace('client arrays', 'a tensor') for e in (here, there))
  assert found.split('found')[0] == wanted.split('found')[0]


def test_tffs_own_process_with_a_secure_aggregator_and_datasets(workers):
  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(5,), kernel_initializer='ones')]),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=collections.OrderedDict(
        x=tf.TensorSpec([None, 5]), y=tf.TensorSpec([None], 'int32')
      ),
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    model_aggregator=tff.learning.secure_aggregator(zeroing=False, clipping=False),
  )
  data = [
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(4)
    for x, y in small_problem.clients()
  ]
  results = []
  for context in (on_workers.context(workers.addresses[:2]), execution.graph_context()):
    with context:
      output = process.next(process.initialize(), data)
      results.append([np.asarray(w) for w in process.get_model_weights(output.state).trainable])
  for ours, expected in zip(*results):
    np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_an_aggregate_of_an_aggregate(workers):
  less = tff.tensorflow.computation(
    lambda x, mean: tf.cast(x, tf.float32) - mean, on_workers.INT, np.float32
  )
  square = tff.tensorflow.computation(lambda d: d * d, np.float32)

  @tff.federated_computation(on_workers.AT_CLIENTS)
  def variance(x):
    as_float = tff.federated_map(
      tff.tensorflow.computation(lambda v: tf.cast(v, tf.float32), on_workers.INT), x
    )
    mean = tff.federated_broadcast(tff.federated_mean(as_float))
    deviation = tff.federated_map(less, (x, mean))
    return tff.federated_mean(tff.federated_map(square, deviation)), deviation

  with on_workers.context(workers.addresses[:2]):
    value, deviation = variance([1, 2, 3, 4, 10])
  np.testing.assert_allclose(deviation, [-3, -2, -1, 0, 6])
  np.testing.assert_allclose(value, 10.0)


def test_only_what_is_broadcast_goes_to_the_workers(workers):
  large = tff.types.TensorType(np.float32, [1_000_000])
  first = tff.tensorflow.computation(lambda state: tf.cast(state[0], tf.int32), large)
  add = tff.tensorflow.computation(lambda x, y: x + y, on_workers.INT, on_workers.INT)

  @tff.federated_computation(tff.types.FederatedType(large, tff.SERVER), on_workers.AT_CLIENTS)
  def comp(state, x):
    sent = tff.federated_broadcast(tff.federated_map(first, state))
    return state, tff.federated_sum(tff.federated_map(add, (x, sent)))

  with on_workers.context(workers.addresses[:2]) as context:
    before = context.bytes_sent
    state, total = comp(np.full(1_000_000, 5, np.float32), [1, 2, 3, 4])
    assert context.bytes_sent - before < 100_000
  assert total == 30
  assert state.shape == (1_000_000,)


def _traffic(name, width, address):
  """Bytes sent and received in a round of 4 clients in 2 subrounds; 8 width parameters."""
  rng = np.random.default_rng(0)
  shapes = (5, width), (width, 3)
  model = models.Model(
    initial_weights=[rng.normal(size=shape).astype(np.float32) for shape in shapes],
    forward=lambda w, x, training, seed: tf.tanh(x @ w[0]) @ w[1],
    example_loss=models.sparse_cross_entropy,
    x_spec=tf.TensorSpec([None, 5], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  with on_workers.context([address], subrounds=2) as context:
    small_problem.Run(_process(name, model), small_problem.clients()).round([0, 1, 2, 3])
    return np.array([context.bytes_sent, context.bytes_received])


@pytest.mark.parametrize(
  'name, copies', [('fed_yogi', 2), ('ada_best', 2 + 4), ('scaffold', 4 + 4)]
)
def test_bytes_a_round_grow_with_the_model_as_the_build_notes_say(name, copies, workers):
  small, large = (_traffic(name, width, workers.addresses[0]) for width in (1000, 6000))
  grown = (large - small) / (4 * 8 * 5000)  # Copies of the parameters, float32.
  np.testing.assert_allclose(grown, [copies, copies], rtol=0.01)


def test_an_error_of_the_computation_is_no_loss(workers):
  @tff.tensorflow.computation(on_workers.INT)
  def fail(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 3, message='too large a client')]):
      return tf.identity(x)

  @tff.federated_computation(on_workers.AT_CLIENTS)
  def comp(x):
    return tff.federated_sum(tff.federated_map(fail, x))

  with on_workers.context(workers.addresses[:2]):
    with pytest.raises(Exception, match='too large a client'):
      comp([1, 2, 3, 4])
    assert comp([1, 2]) == 3


@contextlib.contextmanager
def _silent_server():
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    yield f'127.0.0.1:{listener.getsockname()[1]}'


@contextlib.contextmanager
def _other_protocol():
  """A gRPC server that knows none of TFF's methods, as one of another version may."""
  server = grpc.server(futures.ThreadPoolExecutor(2))
  port = server.add_insecure_port('127.0.0.1:0')
  server.start()
  yield f'127.0.0.1:{port}'
  server.stop(None)


@contextlib.contextmanager
def _nothing():
  with socket.socket() as closed:
    closed.bind(('127.0.0.1', 0))
    yield f'127.0.0.1:{closed.getsockname()[1]}'


@pytest.mark.parametrize(
  'server, message',
  [
    (_nothing, 'no worker at {address} (Connection refused): start one there'),
    (_silent_server, 'what listens at {address} is no TFF worker'),
    (_other_protocol, 'the worker at {address} does not speak as TFF 0.87.0 does'),
  ],
)
def test_an_address_without_a_worker_is_told_within_seconds(server, message, workers):
  with server() as address:
    began = time.monotonic()
    with pytest.raises(execution.WorkerError) as caught:
      execution.RemoteContext([workers.addresses[0], address])
    assert time.monotonic() - began < 10
    assert message.format(address=address) in str(caught.value)
    assert workers.addresses[0] not in str(caught.value)


def test_a_worker_of_another_build_is_refused(workers, monkeypatch):
  here = connections.local_build_id()
  assert len(here) == 40
  monkeypatch.setattr(connections, 'local_build_id', lambda: '0' * 40)
  with pytest.raises(execution.WorkerError) as caught:
    execution.RemoteContext(workers.addresses[:1])
  assert f'is of another TFF than the 0.87.0 here (build {here}' in str(caught.value)


def test_addresses_and_subrounds_are_checked():
  for addresses, message in (
    (['somewhere'], "'somewhere' is not host:port"),
    (['::1:80'], 'is not host:port'),
    (['a:0'], 'must be from 1 to 65535'),
    (['a:1', 'a:1'], 'a:1 is given twice'),
    ([], 'no worker is named'),
    ([f'a:{i}' for i in range(1, 6)], 'subrounds is 4, fewer than the 5 workers'),
  ):
    with pytest.raises(ValueError) as caught:
      execution.RemoteContext(addresses)
    assert message in str(caught.value)
  for addresses, message in (
    ('a:1,b:2', r"must be a list of host:port, found 'a:1,b:2': give \['a:1', 'b:2'\]"),
    ([8000], "an address must be 'host:port', found 8000"),
  ):
    with pytest.raises(TypeError, match=message):
      execution.RemoteContext(addresses)
