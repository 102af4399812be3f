"""A local cluster is reached by nobody else, and is gone with its program, however it ends."""

import contextlib
import os
import subprocess
import sys

import grpc
import psutil
import pytest

from tests.helpers import on_ray
from tff_adaptive.engine.cluster import local_ray

pytest.importorskip('ray')
pytestmark = pytest.mark.xdist_group('ray')  # One cluster at a time.

_ROOT = os.path.dirname(os.path.abspath(__file__)).rsplit(os.sep, 4)[0]
_PROGRAM = """
import sys
from tff_adaptive.engine.cluster import local_ray

local = local_ray.LocalRay(1)
import ray

@ray.remote
def wait(seconds):
  import os, time
  print(os.getpid())
  time.sleep(seconds)

ray.get(wait.remote(0))
waiting = wait.remote(1000)
print(local._folder, ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.readline()
"""


def _users(folder):
  return [p for p in psutil.process_iter() if local_ray._uses(p, folder)]


def test_nothing_is_left_of_a_killed_program_and_nobody_else_gets_in():
  program = subprocess.Popen(
    [sys.executable, '-c', _PROGRAM],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    cwd=_ROOT,
    env={**os.environ, 'RAY_ADDRESS': '127.0.0.1:9'},  # Somebody's cluster: it is not joined.
    text=True,
  )
  try:
    folder, address = program.stdout.readline().split()
    users = _users(folder)
    names = {on_ray.name_of(p).split(' ')[0] for p in users}
    assert {'gcs_server', 'raylet'} <= names
    assert any(name.startswith('ray::') for name in names), names
    _assert_is_private(users, address)
    program.kill()
    program.wait(1200)
    on_ray.wait_for(lambda: not _users(folder) and not os.path.exists(folder))
  finally:
    program.kill()
    program.communicate()


def _assert_is_private(users, address):
  """Loopback only, and nothing without the token."""
  listening = []
  for process in users:
    with contextlib.suppress(psutil.Error):  # It may have just ended.
      connections = process.net_connections('inet')
      listening += [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]
  assert listening
  assert {ip.replace('::ffff:', '') for ip in listening} == {'127.0.0.1'}
  with grpc.insecure_channel(address) as channel:
    ask = channel.unary_unary('/ray.rpc.NodeInfoGcsService/GetAllNodeInfo')
    with pytest.raises(grpc.RpcError) as caught:
      ask(b'', timeout=120)
  assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_a_ray_that_was_imported_without_a_token_is_refused(monkeypatch):
  monkeypatch.delenv('RAY_AUTH_MODE', raising=False)
  monkeypatch.setitem(sys.modules, 'ray', None)
  with pytest.raises(RuntimeError, match=r'set RAY_AUTH_MODE=token \(or disabled\) before'):
    local_ray.import_ray()
