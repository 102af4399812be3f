"""What goes wrong in a Ray worker is named: clients, workers, nodes, lines of user code."""

import os
import re
import sys
import threading

import pytest

from tests.helpers import on_ray
from tff_adaptive import engine
from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import ray_pool, ray_round, ray_worker

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


class _Lock(Exception):
  def __init__(self, text):
    super().__init__(text)
    self.lock = threading.Lock()  # It cannot be pickled.


class _Failing:
  """Cannot load one client."""

  def __init__(self, error):
    self._error = error

  def load(self, keys):
    if 3 in keys:
      raise self._error('no such client')
    return list(keys)


@pytest.mark.parametrize(
  ('error', 'raised'), [(ZeroDivisionError, ZeroDivisionError), (_Lock, engine.WorkerError)]
)
def test_an_error_of_user_code_has_its_type_file_line_client_and_worker(
  error, raised, ray_context, lines
):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  source = _Failing(error)
  argument = [client_references.ClientReference(source, key) for key in (1, 2, 3, 4)]
  with pytest.raises(raised, match='no such client') as caught:
    ray_context.invoke(on_ray.double_and_sum(), argument)
  (line,) = lines
  number = _Failing.load.__code__.co_firstlineno + 2
  where = rf'client 3 in process \d+ on \S+: {error.__name__}: no such client'
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


def test_a_worker_that_ends_by_itself_is_replaced(ray_context, lines, tmp_path):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  source = _Deadly(str(tmp_path))
  argument = [client_references.ClientReference(source, key) for key in (1, 2, 3, 4, 5)]
  before = ray_context.counters()['subrounds_retried']
  total, doubled = ray_context.invoke(on_ray.double_and_sum(), argument)
  assert (total, list(doubled)) == (30, [2, 4, 6, 8, 10])
  assert [line for line in lines if line.startswith('Round 7: a worker was lost; subround')]
  assert ray_context.counters()['subrounds_retried'] > before


class _Fatal:
  """Ends each process that asks for one client."""

  def load(self, keys):
    if 3 in keys:
      os._exit(137)
    return list(keys)


def test_a_client_that_ends_its_workers_is_named(ray_nodes, monkeypatch):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  monkeypatch.setattr(ray_pool, '_RETRIES', 0)
  context = engine.RayContext('auto', patience=1000.0, subrounds=2)
  source = _Fatal()
  argument = [client_references.ClientReference(source, key) for key in (1, 2, 3, 4)]
  expected = r'Subround \d \(clients 1, 3\) ended all .*; alone, too, client 3 did'
  with pytest.raises(engine.WorkersLost, match=expected):
    context.invoke(on_ray.double_and_sum(), argument)


def test_a_client_that_hangs_is_named_with_its_worker(ray_context, monkeypatch, tmp_path):
  pool = ray_context._ray_pool
  monkeypatch.setattr(pool, 'is_overdue', lambda call: len(os.listdir(tmp_path)) == 2)
  call = on_ray.Background(ray_context, on_ray.waiting(tmp_path), [1, 2])
  call.join(600)
  (tmp_path / 'go').write_text('')
  assert isinstance(call.error, engine.WorkersLost)
  expected = r'subround \d \(client \d\) has not ended for \d+ s in process \d+ on \S+$'
  assert re.search(expected, str(call.error))


def test_a_node_short_of_memory_is_left_out(ray_nodes, monkeypatch):
  context, lines = engine.RayContext('auto', patience=1000.0), []
  context.announce('round 7', lines.append)
  nodes = list(context._ray_pool._rooms)
  get, seen = ray.get, []

  def first_time_short(reference):
    info = get(reference)
    seen.append(info)
    if len(seen) == 1:
      raise ray.exceptions.OutOfMemoryError(f'killed on the node (ID: {nodes[0]})')
    return info

  monkeypatch.setattr(
    ray_round.ray, 'get', lambda r, **o: get(r, **o) if o else first_time_short(r)
  )
  total, doubled = context.invoke(on_ray.double_and_sum(), [1, 2, 3, 4])
  assert (total, list(doubled)) == (20, [2, 4, 6, 8])
  assert re.search(r' is short of memory and left out; subround \d goes to another$', lines[0])
  assert context.workers == 1
  remote = context._ray_pool.remote(ray_worker.call, 'where')
  found = {get(remote(lambda _: ray.get_runtime_context().get_node_id(), None)) for _ in range(4)}
  assert found == {nodes[1]}
