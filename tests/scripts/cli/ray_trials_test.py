"""Runs of a sweep on a Ray cluster: the same numbers, hosts that die, signals, room."""

import concurrent.futures
import csv
import os
import signal

import pytest

from scripts import sweep, train
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
def cluster(ray_nodes):
  """Two nodes of one processor each, which this process has joined."""


@pytest.fixture
def joined(tmp_path):
  """What joins with the stub as program, and the lines that are said."""
  from scripts.cli import ray_trials

  (tmp_path / 'stub.py').write_text(_STUB)
  lines = []

  def join(jobs=None, cpus=1, shared='stub.py'):
    stub = str(tmp_path / 'stub.py')
    return ray_trials.joined('auto', jobs, cpus, 0.0, str(tmp_path / shared), lines.append, stub)

  return join, lines


def _do(host, log):
  return host.do(worker.Job([], log), ('key',))


def _stop(host):
  on_ray.wait_for(lambda: host.stop(signal.SIGINT))


def test_runs_spread_over_the_nodes_outlive_their_hosts_and_end_with_signals(joined, tmp_path):
  join, lines = joined
  room, make = join()
  assert room() == 2
  (tmp_path / 'now').touch()
  hosts = [make(), make()]
  with concurrent.futures.ThreadPoolExecutor() as executor:
    answers = [executor.submit(_do, host, 'a') for host in hosts]
    parents = [answer.result().reason for answer in answers]
    assert len({*parents}) == 2
    assert _do(hosts[0], 'a').reason == parents[0]  # Which does what comes next.
    other = _do(hosts[0], f'host {tmp_path}/now')
    assert other.kind == 'host'
    assert other.reason not in parents
    assert not (tmp_path / 'now').exists()  # The host was killed.
    assert len([line for line in lines if 'its Ray worker is lost; it goes on' in line]) == 1
    assert _do(hosts[1], 'kill').reason.startswith('its process was ended by SIGKILL')
    waiting = [executor.submit(_do, h, f'wait {tmp_path}/{i}') for i, h in enumerate(hosts)]
    on_ray.wait_for(lambda: all((tmp_path / str(i)).exists() for i in (0, 1)))
    third = make()  # For which there is no room.
    never = executor.submit(_do, third, 'never')
    for host in (third, *hosts):
      _stop(host)
    assert [answer.result().kind for answer in (never, *waiting)] == ['stopped', 'wait', 'wait']
  for host in hosts:
    host.close()


def test_there_is_room_for_as_many_runs_as_were_asked_for(joined):
  join, lines = joined
  room, _ = join(jobs=1)
  assert room() == 1
  assert not lines
  room, _ = join(cpus=2)
  assert room() == 1  # One run waits.
  assert lines == ['No node of the cluster has room for 2 CPUs: waiting for one.']


def test_a_folder_that_a_node_does_not_see_is_a_reason(tmp_path):
  from scripts.cli import ray_trials

  host = ray_trials.NodeHost(os.getcwd(), str(tmp_path / 'elsewhere'))
  answer = _do(host, 'a')
  assert answer.kind == 'failed'
  assert 'give a folder that all nodes share' in answer.reason


def _course(folder):
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  return [{k: v for k, v in row.items() if not k.startswith('seconds_')} for row in rows]


def test_a_sweep_on_a_cluster_has_the_numbers_of_train(tmp_path):
  flags = ['--task=digits', '--algorithm=ada_best', '--rounds=2', '--clients_per_round=3']
  swept = [f'--output_dir={tmp_path}/sweep', '--grid=seed=1', '--ray=auto', '--', *flags]
  assert sweep.main(['sweep.py', *swept]) == 0
  alone = str(tmp_path / 'alone')
  assert train.main(['train.py', *flags, '--seed=1', f'--output_dir={alone}']) == 0
  assert _course(tmp_path / 'sweep' / 'seed=1') == _course(alone)
