"""A killed `train.py --ray=local`: nobody got in, nothing is left, and one process goes on."""

import contextlib
import csv
import os
import stat
import subprocess
import sys
import time

import grpc
import psutil
import pytest

from scripts import train
from tests.helpers import fresh, on_ray
from tff_adaptive.engine.cluster import joining

pytest.importorskip('ray')
pytestmark = pytest.mark.xdist_group('ray')  # One cluster at a time.

_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
_COLUMNS = {'seconds_waiting', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_retried'}
_ROUNDS = 40  # So many that a run goes on for seconds after a round that is waited for.
_FLAGS = ['--task=digits', '--algorithm=ada_best', f'--rounds={_ROUNDS}', '--clients_per_round=7']
_FLAGS += ['--subrounds=3', '--rounds_per_checkpoint=2']
_ON_RAY = ['--ray=local', '--ray_workers=1']


@pytest.fixture
def begin(request):
  """Starts runs, which end with the test."""

  def start(folder, arguments=(), python=(sys.executable,)):
    process = subprocess.Popen(
      [*python, _SCRIPT, *_FLAGS, f'--output_dir={folder}', *arguments],
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      env={**os.environ, 'RAY_ADDRESS': '127.0.0.1:9'},  # Somebody's cluster: it is not joined.
      text=True,
    )
    request.addfinalizer(process.kill)
    return process

  return start


def _end(process):
  _, lines = process.communicate()
  assert process.returncode == 0, lines


def _rows(folder):
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def _course(rows):
  """The rows without the columns that depend on where they were computed."""
  of_where = ('seconds_', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_')
  left = []
  for row in rows:
    left.append({column: v for column, v in row.items() if not column.startswith(of_where)})
  return left


def _wait_for_round(folder, number, process):
  while process.poll() is None:
    with contextlib.suppress(FileNotFoundError):
      if len(_rows(folder)) > number:
        return
    time.sleep(0.01)


def _assert_is_private(users):
  """Loopback only, and nothing without the token."""
  listening = []
  for process in users:
    with contextlib.suppress(psutil.Error):  # It may have just ended.
      connections = process.net_connections('inet')
      listening += [c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN]
  assert {ip.replace('::ffff:', '') for ip in listening} == {'127.0.0.1'}
  (raylet,) = (process for process in users if on_ray.name_of(process) == 'raylet')
  addresses = (a for a in raylet.cmdline() if a.startswith('--gcs-address='))
  with grpc.insecure_channel(next(addresses).partition('=')[2]) as channel:
    ask = channel.unary_unary('/ray.rpc.NodeInfoGcsService/GetAllNodeInfo')
    with pytest.raises(grpc.RpcError) as caught:
      ask(b'', timeout=120)
  assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.exhaustive
def test_a_killed_run_leaves_nothing_and_goes_on_as_one_process_would(tmp_path, begin, request):
  folder = tmp_path / 'ray'
  undisturbed = begin(tmp_path / 'alone', python=fresh.python())
  first = begin(folder, _ON_RAY)
  _wait_for_round(folder, 3, first)
  psutil.Process(first.pid).suspend()  # It is not to end while the cluster is looked at.
  watchdogs = [c.cmdline() for c in psutil.Process(first.pid).children()]
  (of_ray,) = (command[-1] for command in watchdogs if joining.__file__ in command)
  assert stat.S_IMODE(os.stat(of_ray).st_mode) == 0o700  # Ray lets everybody into its own.
  users = joining.processes(of_ray)
  names = {on_ray.name_of(process).split(' ')[0] for process in users}
  assert {'gcs_server', 'raylet'} <= names
  assert any(name.startswith('ray::') for name in names), names
  log = f'{of_ray}/ray/session_latest/logs/raylet.out'
  reader = subprocess.Popen(['tail', '-f', log], stdout=subprocess.DEVNULL)
  request.addfinalizer(reader.kill)
  _assert_is_private(users)
  first.kill()
  _, lines = first.communicate()
  assert 'Starting 1 worker' in lines
  assert 3 <= len(_rows(folder)) - 1 < _ROUNDS - 2
  on_ray.wait_for(lambda: not joining.processes(of_ray) and not os.path.exists(of_ray))
  assert reader.poll() is None  # Nobody's process but the cluster's is killed.

  _end(begin(folder, python=fresh.python()))
  rows = _rows(folder)
  assert set(rows[1]) >= _COLUMNS
  assert float(rows[1]['bytes_to_workers']) > 1000
  _end(undisturbed)
  alone = _rows(tmp_path / 'alone')
  assert not set(alone[1]) & _COLUMNS
  assert _course(rows) == _course(alone)
