"""Workers on this machine and computations for them, for the tests of the remote context."""

import contextlib

import numpy as np
import tensorflow_federated as tff

from scripts.benchmarking import local_workers
from tff_adaptive.execution import remote

INT = tff.types.TensorType(np.int32)
AT_CLIENTS = tff.types.FederatedType(INT, tff.CLIENTS)


@contextlib.contextmanager
def two_workers():
  """Workers that a test may end."""
  started = local_workers.LocalWorkers(2)
  try:
    yield started
  finally:
    started.close()


@contextlib.contextmanager
def context(addresses, **options):
  installed = remote.RemoteContext(addresses, **options)
  try:
    with tff.framework.get_context_stack().install(installed):
      yield installed
  finally:
    installed.close()


def double_and_sum():
  double = tff.tensorflow.computation(lambda x: 2 * x, INT)

  @tff.federated_computation(AT_CLIENTS)
  def comp(x):
    doubled = tff.federated_map(double, x)
    return tff.federated_sum(doubled), doubled

  return comp
