"""Runs of a sweep on a Ray cluster: hosts that die, signals, room."""

import os
import signal
import sys

import pytest

from scripts.cli import worker
from tests.helpers import on_ray

ray = pytest.importorskip('ray')
pytest.importorskip('optuna')
pytestmark = pytest.mark.xdist_group('ray')  # In one process of pytest, which has the cluster.

# Answers with its parent's number; ends what the log's name says, a host only if a file says so.
_STUB = """
import json, os, signal, sys
signal.pthread_sigmask(0, [signal.SIGTERM])
for line in sys.stdin:
  name, _, path = json.loads(line)['log'].partition(' ')
  if name == 'host' and os.path.exists(path):
    os.unlink(path)
    os.kill(os.getppid(), signal.SIGKILL)
    sys.exit()
  if name == 'kill': os.kill(os.getpid(), signal.SIGKILL)
  if name == 'wait':
    open(path, 'w').close()
    signal.sigwait([signal.SIGTERM])
  print(json.dumps(dict(kind=name, reason=str(os.getppid()))), flush=True)
"""


@pytest.fixture(autouse=True)
def nodes(ray_nodes):
  """Two nodes of one processor each, which this process has joined."""


@pytest.fixture
def cluster(tmp_path):
  """What joins with the stub as program, and the lines that are said."""
  from scripts.cli import ray_trials

  stub = tmp_path / 'stub.py'
  stub.write_text(_STUB)
  lines = []

  def join(jobs=None, cpus=1):
    program = (sys.executable, str(stub))
    return ray_trials.cluster('auto', jobs, cpus, 0.0, str(stub), lines.append, program)

  return join, lines


def _do(host, log):
  host.begin(worker.Job([], log))
  return host.answer(None)


def test_runs_spread_over_the_nodes_outlive_their_hosts_and_end_with_signals(cluster, tmp_path):
  (tmp_path / 'now').touch()
  with cluster[0]() as (room, make):
    assert room() == 2
    hosts = [make(), make()]
    for host in hosts:
      host.begin(worker.Job([], 'a'))
    parents = [host.answer(None).reason for host in hosts]
    assert len({*parents}) == 2
    assert _do(hosts[0], 'a').reason == parents[0]  # Which does what comes next.
    other = _do(hosts[0], f'host {tmp_path}/now')
    assert other.kind == 'host'
    assert other.reason not in parents
    assert not (tmp_path / 'now').exists()  # The host was killed.
    assert _do(hosts[1], 'kill').reason.startswith('its process was ended by SIGKILL')
    third = make()
    for i, host in enumerate((*hosts, third)):  # For the third there is no room.
      host.begin(worker.Job([], f'wait {tmp_path}/{i}'))
    on_ray.wait_for(lambda: all((tmp_path / str(i)).exists() for i in (0, 1)))
    assert third.answer() is None
    for host in (third, *hosts):
      on_ray.wait_for(lambda host=host: host.stop(signal.SIGINT))
    assert [host.answer(None).kind for host in (third, *hosts)] == ['stopped', 'wait', 'wait']
    for host in hosts:
      host.close()


def test_there_is_room_for_as_many_runs_as_were_asked_for(cluster):
  join, lines = cluster
  with join(jobs=1) as (room, _):
    assert room() == 1
    assert not lines
  with join(cpus=2) as (room, _):
    assert room() == 1  # One run waits.
    assert lines == ['No node of the cluster has room for 2 CPUs: waiting for one.']


def test_a_folder_that_a_node_does_not_see_is_a_reason(tmp_path):
  from scripts.cli import ray_trials

  host = ray_trials.NodeHost(os.getcwd(), str(tmp_path / 'elsewhere'))
  answer = host.do(worker.Job([], 'a'))
  assert answer.kind == 'failed'
  assert 'give a folder that all nodes share' in answer.reason
