"""The two engines that the tests compare, and workers."""

import pytest
import tensorflow_federated as tff

from scripts.benchmarking import local_workers
from tff_adaptive import execution


@pytest.fixture(scope='session')
def native():
  """TFF's own runtime, with the bodies of secure sums; its worker is ended after the tests."""
  execution.remember_workers()
  yield tff.backends.test.create_sync_test_cpp_execution_context()
  execution.reap_workers()


@pytest.fixture(scope='session')
def graph():
  """The graph engine."""
  return execution.GraphContext()


@pytest.fixture(scope='session')
def workers():
  """Four workers, which no test may end."""
  started = local_workers.LocalWorkers(4)
  yield started
  started.close()
