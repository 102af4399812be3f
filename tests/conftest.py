"""What holds for all tests."""

import asyncio
import collections
import gc
import signal
import sys

import hypothesis
import psutil
import pytest

# The same examples each time, however slow the machine is.
hypothesis.settings.register_profile('repeatable', deadline=None, derandomize=True)
hypothesis.settings.load_profile('repeatable')


def pytest_configure(config):
  """Makes SIGINT act as usual: a shell starts background jobs, and their children, without it.

  TensorFlow's modules and graphs are millions of objects: looking for garbage as often as Python
  does by itself takes a fifth of the tests' time.
  """
  del config
  gc.set_threshold(50_000, 20, 50)
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave_samples(items):
  """Marks as exhaustive all but n of the cases of a test with the mark `sample(n)`.

  The n are spread evenly over the cases that were collected.
  """
  cases = collections.defaultdict(list)
  for item in items:
    is_sampled = item.get_closest_marker('sample') is not None
    if is_sampled and item.get_closest_marker('exhaustive') is None:
      cases[item.nodeid.partition('[')[0]].append(item)
  for same in cases.values():
    (number,) = same[0].get_closest_marker('sample').args
    for position, item in enumerate(same):
      is_in_sample = position * number // len(same) != (position - 1) * number // len(same)
      if not is_in_sample and number < len(same):
        item.add_marker(pytest.mark.exhaustive)


@pytest.hookimpl(tryfirst=True)  # Before marks select, and pytest-xdist looks at the groups.
def pytest_collection_modifyitems(config, items):
  """Compares versions first, because much fails with others, and then runs what takes long.

  One worker runs a file, which makes what its tests share once; what must be alone comes first.
  """
  _leave_samples(items)
  version = 'test_the_installed_versions_are_those_it_was_written_for'
  slow = collections.Counter(item.path for item in items if item.get_closest_marker('slow'))
  many = collections.Counter(item.path for item in items)
  items.sort(
    key=lambda item: (
      item.name != version,
      item.get_closest_marker('xdist_group') is None,
      -slow[item.path],
      -many[item.path],
      str(item.path),
    )
  )
  for item in items:
    if hasattr(config, 'workerinput') and item.get_closest_marker('xdist_group') is None:
      item.add_marker(pytest.mark.xdist_group(item.nodeid.partition('::')[0]))


@pytest.fixture(autouse=True)
def event_loop_of_the_thread():
  """A test that used `asyncio.run` leaves none or a closed one; TFF's training asks for one."""
  try:
    is_usable = not asyncio.get_event_loop_policy().get_event_loop().is_closed()
  except RuntimeError:
    is_usable = False
  if not is_usable:
    asyncio.set_event_loop(asyncio.new_event_loop())


@pytest.fixture(autouse=True)
def no_global_seed():
  """A test that seeds TensorFlow, as README's first block does, seeds none of those after it."""
  yield
  tensorflow = sys.modules.get('tensorflow')
  if tensorflow is not None and tensorflow.compat.v1.get_seed(None) != (None, None):
    tensorflow.random.set_seed(None)


def pytest_sessionfinish(session, exitstatus):
  """Kills TFF's workers, which outlive their parent; the `subprocess.Popen` of TFF awaits them."""
  del session, exitstatus
  for child in psutil.Process().children():
    if child.name() == 'worker_binary':
      child.kill()


# TensorFlow is imported in the fixtures: many tests do without.
@pytest.fixture(scope='session')
def native():
  """TFF's own runtime, with the bodies of secure sums; its worker is ended after the tests."""
  import tensorflow_federated as tff

  from tff_adaptive import engine

  engine.remember_workers()
  yield tff.backends.test.create_sync_test_cpp_execution_context()
  engine.reap_workers()


@pytest.fixture(scope='session')
def ray_nodes():
  """The one joined Ray cluster of all tests, and the list of its two nodes, which a test keeps."""
  pytest.importorskip('ray')
  from tests.helpers import on_ray

  with on_ray.cluster(2) as cluster_and_nodes:
    yield cluster_and_nodes


@pytest.fixture(scope='session')
def ray_workers(ray_nodes):
  """A context on the cluster of all tests, in which nobody is late, on a busy machine either."""
  from tff_adaptive import engine

  return engine.RayContext('auto', patience=1000.0)


@pytest.fixture
def ray_lines(ray_workers):
  """What the workers' context reports in a test; its occasion is round 7."""
  lines = []
  ray_workers.announce('round 7', lines.append)
  return lines


@pytest.fixture(scope='session')
def graph():
  """The graph engine."""
  from tff_adaptive import engine

  return engine.GraphContext()
