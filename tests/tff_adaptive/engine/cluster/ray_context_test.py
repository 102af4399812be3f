"""Ray workers give the bits of one process, on any number of them, whatever dies."""

import copy
import os
import re
import signal
import sys
import threading

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import computations, on_ray, small_problem, subround_runs, task_data
from tff_adaptive import asynchrony, costs, engine, population, registry, training
from tff_adaptive._utils import client_references
from tff_adaptive_tasks.data import tff_sqlite

ray = pytest.importorskip('ray')
pytestmark = pytest.mark.xdist_group('ray')  # In one process of pytest, which has the cluster.


@pytest.mark.parametrize(
  'name',
  [
    'mime-keep',
    pytest.param('fed_exp-average', marks=pytest.mark.exhaustive),
    pytest.param('compressed', marks=pytest.mark.exhaustive),
  ],
)
def test_one_worker_and_one_process_give_the_same_bits(ray_nodes, graph, name):
  process = subround_runs.build(name)
  context = engine.RayContext('auto', workers=1, patience=1000.0)
  expected = subround_runs.run(process, engine.SubroundContext(4, server=graph))
  np.testing.assert_equal(subround_runs.run(process, context), expected)


@pytest.mark.exhaustive
def test_rounds_that_do_not_wait_give_the_bits_of_one_process(ray_workers, graph, clients):
  speed = population.Speed(speed_sigma=1.5)
  config = training.TrainingConfig(
    rounds=6,
    clients_per_round=3,
    cost_model=costs.CostModel(registry.Counts(), num_parameters=18, batch_size=4),
    population=population.Population(speed=speed),
    asynchrony=asynchrony.Buffered(6),
  )
  process = small_problem.process(
    'scaffold', 0.2, small_problem.linear_model, asynchrony=config.asynchrony
  )
  results = []
  for context in (engine.SubroundContext(4, server=graph), ray_workers):
    with tff.framework.get_context_stack().install(context):
      result = training.train(process, clients, lambda weights: {}, config, show_progress=False)
    results.append([np.asarray(value) for value in tf.nest.flatten(result.state)])
  np.testing.assert_equal(*results)


@pytest.mark.exhaustive
def test_datasets_may_be_summed(ray_workers):
  _, total = computations.collected()
  assert ray_workers.invoke(total, [1.0, 2.0, 3.0, 4.0]) == 20


@pytest.fixture(scope='module')
def clients():
  arrays = small_problem.clients(num_examples=[20 * n for n in small_problem.NUM_EXAMPLES])
  return tasks.InMemoryClientData({f'c{i}': pair for i, pair in enumerate(arrays)})


@pytest.mark.exhaustive
def test_no_examples_travel_and_results_are_those_of_one_process(
  ray_workers, graph, clients, tmp_path
):
  in_one = engine.SubroundContext(4, server=graph)
  process = subround_runs.build('ada_best')
  train = subround_runs.trained
  alone = train(process, in_one, 4, tmp_path / 'alone', clients)
  before = ray_workers.counters()
  trained = train(process, ray_workers, 4, tmp_path / 'workers', clients)
  after = ray_workers.counters()
  np.testing.assert_equal(trained, alone)
  per_round = (after['bytes_to_workers'] - before['bytes_to_workers']) / 4
  weights = sum(w.nbytes for w in small_problem.linear_model().initial_weights[0])
  # The weights, and AdaBest's h; of each of five clients its h_i and an id.
  assert per_round < 2 * weights + 100 + 5 * (weights + 250)
  back = (after['bytes_from_workers'] - before['bytes_from_workers']) / 4
  assert back < 3 * weights + 5 * (weights + 250)


@pytest.mark.exhaustive
def test_a_file_unlike_the_trainers_is_refused_by_its_name_and_the_workers(ray_workers, tmp_path):
  path = tmp_path / 'd.sqlite'
  task_data.write(path, {'train': {'a': [task_data.example(v=[0.5])]}})
  features = {'v': tf.io.FixedLenFeature([1], tf.float32)}
  data = tff_sqlite.SqlClientData(str(path), 'train', features, None)
  assert ray_workers.accepts(data)
  with open(path, 'ab') as file:
    file.write(b'x')
  argument = [client_references.ClientReference(data, 'a')]
  message = r"^Worker process \d+ on \S+ .*: \S+/d.sqlite differs from the trainer's file"
  with pytest.raises(engine.WorkerError, match=message) as raised:
    ray_workers.invoke(on_ray.double_and_sum(), argument)
  assert '\n' not in str(raised.value)


@pytest.mark.exhaustive
def test_what_cannot_be_pickled_is_not_accepted(ray_workers, ray_lines, clients):
  clients = copy.copy(clients)
  clients.lock = threading.Lock()
  assert not ray_workers.accepts(clients)
  assert 'cannot be pickled' in ray_lines[0]
  assert 'lock' in ray_lines[0]


class _Failing:
  """Cannot load one client."""

  def load(self, keys):
    if 3 in keys:
      raise ZeroDivisionError('no such client')
    return list(keys)


@pytest.mark.exhaustive
def test_an_error_of_user_code_has_its_type_file_line_client_and_worker(ray_workers, ray_lines):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  argument = subround_runs.references(_Failing(), (1, 2, 3, 4))
  with pytest.raises(ZeroDivisionError, match='no such client') as caught:
    ray_workers.invoke(on_ray.double_and_sum(), argument)
  line = ray_lines[-1]
  number = _Failing.load.__code__.co_firstlineno + 2
  where = r'client 3 in process \d+ on \S+: ZeroDivisionError: no such client'
  assert re.fullmatch(
    rf'Round 7: subround \d \(client 3\) failed: {where} \({__file__}, line {number}\)', line
  )
  cause = caught.value.__cause__
  assert 'Traceback (most recent call last)' in str(cause)
  assert cause.worker_frames[-1].lineno == number


class _Deadly:
  """Ends its process the first time it is asked, as the kernel does where memory runs out."""

  def __init__(self, folder):
    self._folder = folder

  def load(self, keys):
    try:
      open(os.path.join(self._folder, 'asked'), 'x').close()
    except FileExistsError:
      return list(keys)
    os._exit(137)


@pytest.mark.exhaustive
def test_a_worker_that_ends_by_itself_is_replaced(ray_workers, ray_lines, tmp_path):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  argument = subround_runs.references(_Deadly(str(tmp_path)), (1, 2, 3, 4, 5))
  before = ray_workers.counters()['subrounds_retried']
  total, doubled = ray_workers.invoke(on_ray.double_and_sum(), argument)
  assert (total, list(doubled)) == (30, [2, 4, 6, 8, 10])
  assert [line for line in ray_lines if line.startswith('Round 7: a worker was lost; process ')]
  assert ray_workers.counters()['subrounds_retried'] > before


def _workers():
  """The processes that train, of all nodes."""
  workers = []
  for process in psutil.Process().children(recursive=True):
    name = on_ray.name_of(process)
    if name.startswith('ray::') and 'train' in name:
      workers.append(process)
  return workers


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


@pytest.mark.exhaustive
def test_a_worker_that_is_stopped_and_killed_is_replaced_by_ray(ray_workers, ray_lines, tmp_path):
  call = _in_the_midst(ray_workers, tmp_path, [3, 4])
  stopped = _workers()[0]
  stopped.send_signal(signal.SIGSTOP)
  stopped.kill()
  _let_go(call, tmp_path, [3, 4])
  on_ray.wait_for(lambda: not stopped.is_running())
  assert [line for line in ray_lines if line.startswith('Round 7: a worker was lost; process ')]


@pytest.mark.exhaustive
def test_a_node_that_ends_workers_for_want_of_memory_is_left_out(ray_nodes, ray_workers, ray_lines):
  """Ray ends them there, as soon as they have a task, and repeats the task, but not for ever."""
  cluster, _ = ray_nodes
  monitor = {'RAY_memory_usage_threshold': '0', 'RAY_memory_monitor_refresh_ms': '100'}
  short = cluster.add_node(num_cpus=1, env_vars=monitor)
  double = computations.mapped(lambda x: 2 * x, np.int32)  # Nothing is merged.

  def rounds_until(computation, text):
    while not any(text in line for line in ray_lines):
      ray_workers.invoke(computation, [1, 2, 3, 4, 5])

  rounds_until(double, ' is short of memory and left out; subround')
  assert ray_workers.invoke(double, [1, 2, 3, 4, 5]) == [2, 4, 6, 8, 10]
  cluster.remove_node(short)
  rounds_until(double, ' is lost; ')


@pytest.mark.exhaustive
def test_nodes_are_lost_and_join(ray_nodes, ray_workers, ray_lines, tmp_path):
  """The last of its file: what it puts in their place has no workers yet."""
  cluster, others = ray_nodes
  call = _in_the_midst(ray_workers, tmp_path, [5, 6])
  cluster.remove_node(others.pop(0), allow_graceful=False)
  _let_go(call, tmp_path, [5, 6])
  while not any(' is lost; ' in line for line in ray_lines):  # In this call, or in one to come.
    ray_workers.invoke(on_ray.double_and_sum(), [1])
  others.append(cluster.add_node(num_cpus=1))
  while not any(' has joined; ' in line for line in ray_lines):
    ray_workers.invoke(on_ray.double_and_sum(), [1])
  lost, joined = (line for line in ray_lines if line.startswith('Round 7: node '))
  assert lost.endswith(' is lost; 1 with room left')  # The head has none.
  assert joined.endswith(' has joined; 2 with room')
