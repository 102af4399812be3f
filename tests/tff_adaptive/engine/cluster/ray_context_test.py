"""Ray workers give the bits of one process, on any number of them, whatever dies."""

import collections
import copy
import functools
import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import on_ray, small_problem, task_data
from tests.tff_adaptive.engine.cluster import subrounds_test
from tff_adaptive import algorithms, costs, engine, population, registry, training
from tff_adaptive._utils import client_references
from tff_adaptive.client import ClientTraining, batching
from tff_adaptive.engine.cluster import ray_pool, ray_round, ray_worker
from tff_adaptive_tasks.data import tff_sqlite

ray = pytest.importorskip('ray')
pytestmark = pytest.mark.xdist_group('ray')  # In one process of pytest, which has the cluster.


@pytest.fixture(scope='module')
def ray_context(ray_nodes):
  return engine.RayContext('auto', patience=1000.0)  # Nobody is late, on a busy machine either.


@pytest.fixture
def lines(ray_context):
  found = []
  ray_context.announce('round 7', found.append)
  return found


@pytest.fixture
def alone(graph):
  return engine.SubroundContext(4, server=graph)


@pytest.fixture(scope='module')
def one_worker(ray_nodes):
  return engine.RayContext('auto', workers=1, patience=1000.0)


_build = functools.cache(subrounds_test.build)  # Workers trace a process once.


@pytest.mark.parametrize('name', ['fed_yogi', 'scaffold', 'ada_best'])  # All: subrounds_test.
def test_one_and_two_workers_and_one_process_give_the_same_bits(
  name, ray_context, one_worker, alone
):
  process = _build(name)
  expected = subrounds_test.run(process, alone)
  for context in (ray_context, one_worker):
    np.testing.assert_equal(subrounds_test.run(process, context), expected)


def test_datasets_of_structures_travel_by_value(ray_context):
  pair = collections.OrderedDict(y=np.int32, x=(np.int32, np.int32))
  element = tff.types.SequenceType(tff.types.to_type(pair))
  total = tff.tensorflow.computation(
    lambda d: d.reduce(0, lambda s, e: s + e['y'] * e['x'][0] + e['x'][1]), element
  )

  @tff.federated_computation(tff.types.FederatedType(element, tff.CLIENTS))
  def comp(data):
    return tff.federated_sum(tff.federated_map(total, data))

  def of(n):
    numbers = tf.range(n, dtype=tf.int32)
    arrays = collections.OrderedDict(y=numbers, x=(numbers + 1, numbers + 5))
    return tf.data.Dataset.from_tensor_slices(arrays)

  expected = sum(i * (i + 1) + i + 5 for n in (2, 3, 4) for i in range(n))
  assert ray_context.invoke(comp, [of(n) for n in (2, 3, 4)]) == expected


def test_only_what_is_broadcast_goes_to_the_workers(ray_context):
  large = tff.types.TensorType(np.float32, [1_000_000])
  first = tff.tensorflow.computation(lambda state: tf.cast(state[0], tf.int32), large)
  add = tff.tensorflow.computation(lambda x, y: x + y, on_ray.INT, on_ray.INT)

  @tff.federated_computation(tff.types.FederatedType(large, tff.SERVER), on_ray.AT_CLIENTS)
  def comp(state, x):
    broadcast = tff.federated_broadcast(tff.federated_map(first, state))
    return state, tff.federated_sum(tff.federated_map(add, (x, broadcast)))

  before = ray_context.counters()
  argument = tff.structure.Struct.unnamed(np.full(1_000_000, 5, np.float32), [1, 2, 3, 4])
  state, total = ray_context.invoke(comp, argument)
  assert total == 30
  assert state.shape == (1_000_000,)
  after = ray_context.counters()
  # An int32 is broadcast, and one a client is sent; back come two sums of two workers.
  assert after['bytes_to_workers'] - before['bytes_to_workers'] == 4 + 4 * 4
  assert after['bytes_from_workers'] - before['bytes_from_workers'] == 2 * 4


@pytest.mark.parametrize('is_here', [False, True])
def test_workers_merge_all_sums_that_are_large_unless_all_is_here(
  is_here, ray_context, monkeypatch
):
  if is_here:  # As with one node.
    monkeypatch.setattr(ray_pool.RayPool, 'is_here', True)
  large = tff.types.TensorType(np.int32, [300_000])  # 1.2 MB; also what is broadcast.
  add = tff.tensorflow.computation(lambda x, state: x + state, on_ray.INT, large)

  @tff.federated_computation(tff.types.FederatedType(large, tff.SERVER), on_ray.AT_CLIENTS)
  def comp(state, x):
    broadcast = tff.federated_broadcast(state)
    return tff.federated_sum(tff.federated_map(add, (x, broadcast)))

  before = ray_context.counters()
  state = np.arange(300_000, dtype=np.int32)
  total = ray_context.invoke(comp, tff.structure.Struct.unnamed(state, [1, 2, 3, 4]))
  np.testing.assert_equal(np.asarray(total), 10 + 4 * state)
  after = ray_context.counters()
  assert after['bytes_to_workers'] - before['bytes_to_workers'] == state.nbytes + 4 * 4
  received = after['bytes_from_workers'] - before['bytes_from_workers']
  assert received == (1 + is_here) * state.nbytes


def _train(context, clients, folder, rounds=4, store='shards'):
  """A run of AdaBest: the server state's values."""
  config = training.TrainingConfig(
    rounds=rounds, clients_per_round=5, rounds_per_checkpoint=2, client_state_store=store
  )
  with tff.framework.get_context_stack().install(context):
    result = training.train(
      _build('ada_best'),
      clients,
      lambda weights: {},
      config,
      output_dir=str(folder),
      show_progress=False,
    )
  return [np.asarray(value) for value in tf.nest.flatten(result.state)]


@pytest.fixture(scope='module')
def clients():
  arrays = small_problem.clients(num_examples=[20 * n for n in small_problem.NUM_EXAMPLES])
  return tasks.InMemoryClientData({f'c{i}': pair for i, pair in enumerate(arrays)})


@pytest.fixture(scope='module')
def trained_alone(graph, clients, tmp_path_factory):
  folder = tmp_path_factory.mktemp('alone')
  return _train(engine.SubroundContext(4, server=graph), clients, folder, store='memory')


def test_only_ids_travel_and_results_are_those_of_one_process(
  ray_context, clients, trained_alone, tmp_path
):
  before = ray_context.counters()
  trained = _train(ray_context, clients, tmp_path)
  after = ray_context.counters()
  np.testing.assert_equal(trained, trained_alone)
  per_round = (after['bytes_to_workers'] - before['bytes_to_workers']) / 4
  weights = 4 * small_problem.theta_0().size
  # The weights, and AdaBest's h; of a client two ids and the place of its state.
  assert per_round < 2 * weights + 100 + 5 * 250
  assert (after['bytes_from_workers'] - before['bytes_from_workers']) / 4 < 3 * weights + 5 * 250


class _Rows(training.Callback):
  """Keeps what does not depend on the time of a run's rows."""

  def __init__(self):
    self.seen = []

  def round_end(self, row):
    self.seen.append({k: v for k, v in row.items() if not k.startswith('seconds_')})


def test_a_population_on_workers_equals_one_in_one_process(ray_context, alone, clients):
  chosen = population.Population(
    population.Independent(0.9),
    population.Speed(1.0, downlink=1.0, uplink=1.0, speed_sigma=0.5),
    round_deadline=60.0,  # Steps that a client of middling speed takes, of 30 to 160.
    stragglers='partial',
    dropout_rate=0.2,
  )
  config = training.TrainingConfig(
    rounds=4,
    clients_per_round=6,
    population=chosen,
    cost_model=costs.CostModel(registry.Counts(), 1000, batch_size=4, epochs=2),
  )
  process = algorithms.build(
    'ada_best',
    small_problem.model(),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(4, 2, step_limits=True)),
  )
  runs = []
  for context in (alone, ray_context):
    rows = _Rows()
    arguments = (process, clients, lambda weights: {}, config)
    with tff.framework.get_context_stack().install(context):
      result = training.train(*arguments, callbacks=[rows], show_progress=False)
    runs.append((rows.seen, [np.asarray(value) for value in tf.nest.flatten(result.state)]))
  np.testing.assert_equal(runs[1], runs[0])
  first, *others = (row['clients'] for row in runs[0][0] if row['round'])
  assert any(count != first for count in others)  # Some were away, or failed.


def test_a_run_goes_on_without_workers_and_with_them(
  ray_context, alone, clients, trained_alone, tmp_path
):
  _train(ray_context, clients, tmp_path, rounds=1)
  _train(alone, clients, tmp_path, rounds=3, store='memory')
  np.testing.assert_equal(_train(ray_context, clients, tmp_path), trained_alone)


def test_a_file_unlike_the_trainers_is_refused_by_its_name_and_the_workers(ray_context, tmp_path):
  path = tmp_path / 'd.sqlite'
  task_data.write(path, {'train': {'a': [task_data.example(v=[0.5])]}})
  features = {'v': tf.io.FixedLenFeature([1], tf.float32)}
  data = tff_sqlite.SqlClientData(str(path), 'train', features, None)
  assert ray_context.accepts(data)
  with open(path, 'ab') as file:
    file.write(b'x')
  argument = [client_references.ClientReference(data, 'a')]
  message = r"^Worker process \d+ on \S+ .*: \S+/d.sqlite differs from the trainer's file"
  with pytest.raises(engine.WorkerError, match=message) as raised:
    ray_context.invoke(on_ray.double_and_sum(), argument)
  assert '\n' not in str(raised.value)


def test_what_cannot_be_pickled_goes_by_value(ray_context, lines, clients, trained_alone, tmp_path):
  clients = copy.copy(clients)
  clients.lock = threading.Lock()
  np.testing.assert_equal(_train(ray_context, clients, tmp_path, store='memory'), trained_alone)
  assert [line for line in lines if 'cannot be pickled' in line and 'lock' in line]


def test_where_a_node_does_not_see_the_folder_states_go_through_the_trainer(
  ray_context, clients, trained_alone, tmp_path, monkeypatch
):
  monkeypatch.setattr(ray_context, 'on_each_node', lambda function, path: [('10.0.0.9', '')])
  with pytest.warns(UserWarning, match=r'is not there on 10\.0\.0\.9: client states go through'):
    trained = _train(ray_context, clients, tmp_path)
  np.testing.assert_equal(trained, trained_alone)
  assert not (tmp_path / 'checkpoints' / 'client_states').exists()


def test_an_error_of_the_computation_is_raised_as_it_is(ray_context):
  @tff.tensorflow.computation(on_ray.INT)
  def fail(x):
    with tf.control_dependencies([tf.debugging.assert_less(x, 3, message='too large a client')]):
      return tf.identity(x)

  @tff.federated_computation(on_ray.AT_CLIENTS)
  def comp(x):
    return tff.federated_sum(tff.federated_map(fail, x))

  with pytest.raises(tf.errors.InvalidArgumentError, match='too large a client'):
    ray_context.invoke(comp, [1, 2, 3, 4])
  assert ray_context.invoke(comp, [1, 2]) == 3


def test_a_worker_of_other_versions_is_refused(ray_context, monkeypatch):
  monkeypatch.setattr(ray_worker, 'versions', lambda: 'TFF 0.1')
  with pytest.raises(engine.WorkerError, match=r'has TensorFlow .*; here are TFF 0\.1: install'):
    ray_context.invoke(on_ray.double_and_sum(), [1, 2])


def _workers():
  """The processes that train, of all nodes."""
  found = []
  for process in psutil.Process().children(recursive=True):
    name = on_ray.name_of(process)
    if name.startswith('ray::') and 'train' in name:
      found.append(process)
  return found


def _in_the_midst(context, folder, clients):
  """A call whose clients have all begun and wait."""
  call = on_ray.Background(context, on_ray.waiting(folder), clients)
  on_ray.wait_for(lambda: len(os.listdir(folder)) == len(clients) or call.error)
  assert call.error is None
  return call


def _let_go(call, folder, clients):
  (folder / 'go').write_text('')
  call.join(1200)
  assert call.error is None
  total, done = call.result
  assert (total, list(done)) == (sum(clients), clients)  # Each is counted once.


def test_a_stopped_workers_subround_is_given_to_another(ray_context, tmp_path):
  del ray_context  # It has the cluster's workers ready.
  lines = []
  impatient = engine.RayContext('auto', patience=1.0)
  impatient.announce('round 8', lines.append)
  call = _in_the_midst(impatient, tmp_path, [3, 4])
  stopped = _workers()[0]
  stopped.send_signal(signal.SIGSTOP)
  try:
    _let_go(call, tmp_path, [3, 4])
  finally:
    stopped.send_signal(signal.SIGCONT)
  late = [line for line in lines if line.startswith('Round 8: subround ')]
  assert late[0].endswith(' s: another worker does it too')


def test_a_node_that_joins_or_is_lost_is_reported_and_nothing_is_lost(
  ray_nodes, ray_context, lines, alone, tmp_path
):
  cluster, others = ray_nodes
  process = _build('ada_best')
  expected = subrounds_test.run(process, alone)
  call = _in_the_midst(ray_context, tmp_path, [5, 6])
  others.append(cluster.add_node(num_cpus=1))
  cluster.remove_node(others.pop(0), allow_graceful=False)
  _let_go(call, tmp_path, [5, 6])
  for words in (' is lost; ', ' has joined; '):  # In this call, or in one to come.
    while not any(line.startswith('Round 7: node ') and words in line for line in lines):
      ray_context.invoke(on_ray.double_and_sum(), [1])
  np.testing.assert_equal(subrounds_test.run(process, ray_context), expected)


def test_nobody_is_late_while_a_worker_imports(ray_context, monkeypatch):
  pool = ray_context._ray_pool
  call = ray_round.Call((0, 0), range(1), None, began=-1e6)
  monkeypatch.setattr(pool, '_warm_ups', [])
  monkeypatch.setattr(pool, '_warm_since', -1e6)
  assert pool.look([call]) == [call]
  pool._warm_ups = [(never_ready := ray.ObjectRef.from_random(), time.monotonic())]
  assert pool.look([call]) == []
  pool._warm_ups = [(never_ready, -1e6)]  # No import takes so long.
  assert pool.look([call]) == []  # From now on.
  pool._warm_since = -1e6
  assert pool.look([call]) == [call]


def test_a_call_that_waits_for_a_busy_cluster_is_given_again_ever_more_rarely(
  ray_context, monkeypatch
):
  pool, now = ray_context._ray_pool, time.monotonic()
  monkeypatch.setattr(pool, '_warm_ups', [])
  monkeypatch.setattr(pool, '_warm_since', -1e6)
  monkeypatch.setattr(pool, '_longest', [0.0, 0.0])
  monkeypatch.setattr(pool, '_patience', 100.0)
  late = [
    [
      bool(pool.look([ray_round.Call((0, 0), range(1), None, began=now - ago, copies=copies)]))
      for copies in range(3)
    ]
    for ago in (150, 250, 450)
  ]
  assert late == [[True, False, False], [True, True, False], [True, True, True]]


def test_without_any_node_the_round_is_lost_within_seconds_and_the_run_goes_on_later(
  ray_nodes, clients, trained_alone, tmp_path
):
  cluster, others = ray_nodes
  ray_context = engine.RayContext('auto', patience=1.0)
  _train(ray_context, clients, tmp_path, rounds=3)
  ray_context.announce('round 7', lambda line: None)
  assert not ray_context._ray_pool.is_here
  while others:
    cluster.remove_node(others.pop(), allow_graceful=False)
  with pytest.raises(engine.WorkersLost, match='Round 7: no worker is left: no node of the'):
    _train(ray_context, clients, tmp_path)
  for ask in (lambda: ray_context.each(len, ['ab']), lambda: ray_context.on_each_node(len, 'ab')):
    with pytest.raises(engine.WorkersLost, match='no worker is left'):
      ask()
  assert ray_context._ray_pool.is_here
  others += [cluster.add_node(num_cpus=1) for _ in range(2)]
  np.testing.assert_equal(_train(ray_context, clients, tmp_path), trained_alone)
