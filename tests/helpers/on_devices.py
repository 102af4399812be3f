"""Run by `placement_test.py` in a process of its own, whose CPU is divided into four devices."""

import collections
import json
import sys

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices('CPU')[0], [tf.config.LogicalDeviceConfiguration()] * 4
)

# ruff: noqa: E402 (the devices are divided before anything can use them)
import tensorflow_federated as tff
from tensorflow.python.eager import context as tf_context

from tests.helpers import computations, engines, processes, small_problem
from tff_adaptive import algorithms, engine
from tff_adaptive.client import Batching, ClientTraining

DEVICES = ['/CPU:1', '/CPU:2', '/CPU:3']  # CPU:0 plays the host.


def contexts(**options):
  """The engine on three devices, on one named device and on none named."""
  return [
    engine.GraphContext(device_names=DEVICES, **options),
    engine.GraphContext(device_names=DEVICES[:1], **options),
    engine.GraphContext(),
  ]


def three_rounds(context, name, **options):
  """Server state, client states and metrics of an algorithm of this project."""
  with tff.framework.get_context_stack().install(context):
    process = algorithms.build(
      name,
      small_problem.model(),
      client_learning_rate=0.1,
      training=ClientTraining(batching=Batching(4, 2)),
      **options,
    )
    run = small_problem.Run(process, small_problem.clients())
    # Five clients on three devices; then one, with two devices idle; then states that come back.
    run.rounds([[0, 3, 1, 6, 2], [4], [6, 4, 3]])
  return run.state, run.client_states, run.metrics


def own_algorithms():
  """Algorithms of this project, one client after another and together."""
  for name, together, options in (
    ('fed_yogi', 1, dict(server_learning_rate=0.1)),
    ('scaffold', 2, dict(num_clients=7)),
  ):
    *divided, whole = contexts(clients_per_step=together)
    whole = three_rounds(whole, name, **options)
    for context in divided if name == 'fed_yogi' else divided[:1]:
      state, client_states, metrics = three_rounds(context, name, **options)
      engines.assert_same((state, metrics), (whole[0], whole[2]))
      assert client_states.keys() == whole[1].keys()
      for client, found in client_states.items():
        engines.assert_same(found, whole[1][client])


def processes_of_tff():
  """Keras models on datasets, secure sums, lookup tables: what has more than one kind of value."""
  for name in ('weighted_fed_avg', 'secure'):
    results = []
    for context in contexts()[::2]:
      with tff.framework.get_context_stack().install(context):
        process = processes.PROCESSES[name]()
        output = process.next(process.initialize(), processes.cohorts()[0])
      results.append(output)
    engines.assert_same(*results)


def values_of_clients():
  """Results of unknown shape, sequences, and a value that a second loop needs."""
  double = computations.mapped(lambda x: 2 * x, computations.VECTOR)
  shift = computations.mapped(lambda d: d.map(lambda x: x + 1), computations.NUMBERS)
  add = tff.tensorflow.computation(lambda a, b: a - b, np.float32, np.float32)
  square = tff.tensorflow.computation(lambda x: x * x, np.float32)

  @tff.federated_computation(computations.at_clients(np.float32))
  def centred(x):
    squares = tff.federated_map(square, x)
    mean = tff.federated_broadcast(tff.federated_mean(squares))
    return tff.federated_map(add, (squares, mean))

  numbers = [np.float32(range(n)) for n in (1, 0, 3, 2)]
  for context in contexts()[:-1]:
    doubled = engines.run(context, double, numbers)
    engines.assert_same(list(doubled), [2 * n for n in numbers])
    engines.assert_same(list(engines.run(context, double, doubled)), [4 * n for n in numbers])
    shifted = engines.run(context, shift, [[1, 2], [], [3], [4, 5, 6]])
    assert [list(s) for s in shifted] == [[2, 3], [], [4], [5, 6, 7]]
    assert list(engines.run(context, centred, [1.0, 2.0, 3.0, 4.0])) == [-6.5, -3.5, 1.5, 8.5]
    assert list(engines.run(context, centred, [])) == []


def placement():
  """Device -> operations of a round of FedYogi, as TensorFlow has placed them."""
  process = algorithms.build(
    'fed_yogi',
    small_problem.model(),
    client_learning_rate=0.1,
    server_learning_rate=0.1,
    training=ClientTraining(batching=Batching(4, 2)),
  )
  clients = small_problem.clients()
  cohort = [small_problem.element(clients[i], i) for i in range(4)]
  with tff.framework.get_context_stack().install(contexts()[0]):
    state = process.initialize()
    tf_context.context().enable_run_metadata()
    process.next(state, cohort)
    metadata = tf_context.context().export_run_metadata()
  found = collections.defaultdict(set)
  for function in metadata.function_graphs:
    for graph in function.partition_graphs:
      for node in graph.node:
        found[node.device.rsplit('device:')[-1]].add(node.op)
  return {device: sorted(operations) for device, operations in found.items()}


if __name__ == '__main__':
  placed = placement()
  values_of_clients()
  own_algorithms()
  processes_of_tff()
  json.dump(placed, sys.stdout)
