"""Ray clusters of several nodes on this machine, and computations for them."""

import contextlib
import os
import threading
import time

import numpy as np
import psutil
import tensorflow as tf
import tensorflow_federated as tff

INT = tff.types.TensorType(np.int32)
AT_CLIENTS = tff.types.FederatedType(INT, tff.CLIENTS)
# The loss of a node is noticed after a second instead of 15.
_HEALTH = {
  'health_check_initial_delay_ms': 1000,
  'health_check_period_ms': 500,
  'health_check_failure_threshold': 2,
}


@contextlib.contextmanager
def cluster(nodes):
  """Yields a joined Ray cluster, whose head has no processor, and its other nodes, of one each."""
  os.environ.setdefault('RAY_enable_metrics_collection', '0')
  # Ray's 15 starves workers beside the other tests.
  os.environ.setdefault('RAY_worker_niceness', '0')
  import ray
  from ray import cluster_utils

  class Patient(cluster_utils.Cluster):
    """Bears it that a busy machine takes longer than the half minute that Ray gives a node."""

    def _wait_for_node(self, node, timeout=600):
      super()._wait_for_node(node, timeout)

  assert not ray.is_initialized()
  cluster_of_test = Patient()
  try:
    cluster_of_test.add_node(num_cpus=0, _system_config=_HEALTH)
    # The head is the only node yet; the node that this process joins could not be removed. Logs of
    # the cluster, as that the disk is nearly full, would come into the output of any later test.
    ray.init(address=cluster_of_test.address, log_to_driver=False, logging_level='ERROR')
    yield cluster_of_test, [cluster_of_test.add_node(num_cpus=1) for _ in range(nodes)]
  finally:
    ray.shutdown()
    cluster_of_test.shutdown()


def double_and_sum():
  double = tff.tensorflow.computation(lambda x: 2 * x, INT)

  @tff.federated_computation(AT_CLIENTS)
  def comp(x):
    doubled = tff.federated_map(double, x)
    return tff.federated_sum(doubled), doubled

  return comp


def waiting(folder):
  """A computation whose clients say that they have begun, and wait until a file `go` is there."""

  @tff.tensorflow.computation(INT)
  def work(x):
    begun = tf.io.write_file(tf.strings.join([str(folder), '/', tf.strings.as_string(x)]), '')

    def must_wait(n):
      # Of n, or TensorFlow would look once, before the loop.
      pattern = tf.strings.join([f'{folder}/go', tf.strings.substr(tf.strings.as_string(n), 0, 0)])
      return tf.equal(tf.size(tf.io.matching_files(pattern)), 0)

    with tf.control_dependencies([begun]):
      tries = tf.while_loop(must_wait, lambda n: (n + 1,), (tf.constant(0),))
    with tf.control_dependencies(tries):
      return tf.identity(x)

  @tff.federated_computation(AT_CLIENTS)
  def comp(x):
    done = tff.federated_map(work, x)
    return tff.federated_sum(done), done

  return comp


class Background(threading.Thread):
  """Calls a computation in a context of its own thread."""

  def __init__(self, context, comp, arg):
    super().__init__(daemon=True)
    self._call = context, comp, arg
    self.result = self.error = None
    self.start()

  def run(self):
    context, comp, arg = self._call
    try:
      self.result = context.invoke(comp, arg)
    except Exception as error:
      self.error = error


def name_of(process):
  """The name of a process, '' if it has just ended."""
  with contextlib.suppress(psutil.Error):
    return process.name()
  return ''


def wait_for(condition, seconds=1200):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'waited too long'
    time.sleep(0.05)
