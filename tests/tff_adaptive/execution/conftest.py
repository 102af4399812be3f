"""The two engines that the tests compare."""

import pytest
import tensorflow_federated as tff

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
