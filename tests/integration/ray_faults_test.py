"""What goes wrong in a Ray worker is named: clients, workers, nodes, lines of user code."""

import os
import re
import sys

import pytest

from tests.helpers import on_ray
from tff_adaptive._utils import client_references

ray = pytest.importorskip('ray')
pytestmark = pytest.mark.xdist_group('ray')  # In one process of pytest, which has the cluster.


class _Failing:
  """Cannot load one client."""

  def load(self, keys):
    if 3 in keys:
      raise ZeroDivisionError('no such client')
    return list(keys)


def test_an_error_of_user_code_has_its_type_file_line_client_and_worker(ray_workers, ray_lines):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  source = _Failing()
  argument = [client_references.ClientReference(source, key) for key in (1, 2, 3, 4)]
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


def test_a_worker_that_ends_by_itself_is_replaced(ray_workers, ray_lines, tmp_path):
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  source = _Deadly(str(tmp_path))
  argument = [client_references.ClientReference(source, key) for key in (1, 2, 3, 4, 5)]
  before = ray_workers.counters()['subrounds_retried']
  total, doubled = ray_workers.invoke(on_ray.double_and_sum(), argument)
  assert (total, list(doubled)) == (30, [2, 4, 6, 8, 10])
  assert [line for line in ray_lines if line.startswith('Round 7: a worker was lost; process ')]
  assert ray_workers.counters()['subrounds_retried'] > before
