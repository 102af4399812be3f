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

from tests.helpers import closeness, computations, engines, processes
from tff_adaptive import engine
from tff_adaptive._utils import gathered

DEVICES = ['/CPU:1', '/CPU:2', '/CPU:3']  # CPU:0 plays the host.


def contexts(**options):
  """The engine on three devices, on one named device and on none named."""
  return [
    engine.GraphContext(device_names=DEVICES, **options),
    engine.GraphContext(device_names=DEVICES[:1], **options),
    engine.GraphContext(),
  ]


def own_algorithm():
  """SCAFFOLD of this project, two clients together: states, what clients keep, metrics.

  Two clients together are batched operations, whose sums have another order than those of one. So
  the last bits of theta_i differ, on which processors depends on their instruction sets, and
  c_i = (theta - theta_i) / (K lr) has these bits multiplied by 1 / (K lr).
  """
  process = processes.own('scaffold', num_clients=7)
  of_all = processes.whole(*((i, 3 + 5 * i % 7) for i in range(7)))
  results = []
  for context in contexts(clients_per_step=2)[::2]:
    state = engines.run(context, process.initialize)
    states = {}
    models = []
    # Five clients on three devices; then two, with two devices idle; then states that come back.
    for cohort in ([0, 3, 1, 6, 2], [4, 5], [6, 4, 3]):
      before = [states.get(i, process.initial_client_state) for i in cohort]
      after = engines.run(context, process.next, state, before, [of_all[i] for i in cohort])
      state = after[0]
      states.update(zip(cohort, after[1]))
      models.append(after[2])
    results.append((state, states, models))
  norm = np.sqrt(sum(np.sum(np.square(w)) for w in state.global_model_weights.trainable))
  engines.assert_same(*results, atol=closeness.ATOL * norm / processes.RATE)


def process_of_tff():
  """A Keras model, which has variables of each client's own, on datasets."""
  process = processes.PROCESSES['weighted_fed_avg']()
  results = []
  for context in contexts()[::2]:
    state = engines.run(context, process.initialize)
    results.append(engines.run(context, process.next, state, processes.cohorts()[0]))
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


def gathered_rows():
  """Rows of clients, which are merged by device, are in the order of the cohort."""

  @tff.federated_computation(computations.at_clients(np.float32))
  def rows(x):
    return gathered.gather(x)

  numbers = [1.0, 2.0, 3.0, 4.0, 5.0]
  for context in contexts()[:-1]:
    assert list(engines.run(context, rows, numbers)) == numbers


def placement():
  """Device -> operations of a round of FedYogi, as TensorFlow has placed them."""
  process = processes.own()
  cohort = processes.whole(*((i, 5) for i in range(4)))
  with tff.framework.get_context_stack().install(contexts()[0]):
    state = process.initialize()
    tf_context.context().enable_run_metadata()
    process.next(state, cohort)
    metadata = tf_context.context().export_run_metadata()
  devices = collections.defaultdict(set)
  for function in metadata.function_graphs:
    for graph in function.partition_graphs:
      for node in graph.node:
        devices[node.device.rsplit('device:')[-1]].add(node.op)
  return {device: sorted(operations) for device, operations in devices.items()}


if __name__ == '__main__':
  placed = placement()
  values_of_clients()
  gathered_rows()
  own_algorithm()
  process_of_tff()
  json.dump(placed, sys.stdout)
