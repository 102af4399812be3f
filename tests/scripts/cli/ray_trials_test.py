"""Runs of a sweep on a Ray cluster: the same numbers, hosts that die, signals, room."""

import csv
import os
import signal
import threading

import pytest

from scripts import sweep, train
from scripts.cli import worker, worker_pool
from tests.helpers import on_ray

ray = pytest.importorskip('ray')
pytest.importorskip('optuna')
pytestmark = pytest.mark.xdist_group('ray')  # One cluster at a time, not one a process of pytest.

# Answers with its parent's number; ends what the log's name says, a host only if a file says so.
_STUB = """
import json, os, signal, sys
signal.pthread_sigmask(0, [signal.SIGTERM])
for line in sys.stdin:
  name, _, path = json.loads(line)['log'].partition(' ')
  if name == 'host' and os.path.exists(path):
    os.unlink(path)
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
  if name == 'kill': os.kill(os.getpid(), signal.SIGKILL)
  if name == 'wait':
    open(path, 'w').close()
    signal.sigwait([signal.SIGTERM])
  print(json.dumps(dict(kind=name, reason=str(os.getppid()))), flush=True)
"""


@pytest.fixture(scope='module', autouse=True)
def cluster():
  """Two nodes of one processor each, which this process has joined."""
  with on_ray.cluster(2) as made:
    yield made


@pytest.fixture
def trials(tmp_path, monkeypatch):
  """What makes a pool whose processes are the stub's, and the lines that it says."""
  from scripts.cli import ray_trials

  (tmp_path / 'stub.py').write_text(_STUB)
  (tmp_path / 'shared').touch()
  monkeypatch.setattr(worker_pool, 'WORKER', str(tmp_path / 'stub.py'))
  lines = []

  def build(jobs=None, shared='shared', cpus=1):
    resources = ray_trials.Resources(cpus)
    path = str(tmp_path / shared)
    return ray_trials.RayTrials(jobs, resources, path, lines.append, lambda: lines.append('left'))

  return build, lines


def _wait(pool, number=1):
  found = []
  on_ray.wait_for(lambda: found.extend(pool.wait(1)) or len(found) >= number)
  return sorted(found, key=lambda pair: pair[0])


def _begin(pool, *logs):
  for log in logs:
    pool.begin(log.partition(' ')[0], worker.Job([], log), ('key',))


def test_runs_spread_over_the_nodes_outlive_their_hosts_and_end_with_signals(trials, tmp_path):
  build, lines = trials
  (tmp_path / 'now').touch()
  with build() as pool:
    assert pool.has_room
    _begin(pool, 'a', 'b')
    assert not pool.has_room
    assert sorted(pool.tickets) == ['a', 'b']
    first = {answer.reason for _, answer in _wait(pool, 2)}
    assert len(first) == 2  # Two hosts, which do what comes next.
    _begin(pool, f'host {tmp_path}/now', 'b')
    (_, other), (_, again) = _wait(pool, 2)
    assert (other.kind, again.kind) == ('b', 'host')
    assert other.reason in first
    assert not (tmp_path / 'now').exists()  # The host of the other was killed.
    assert len([line for line in lines if 'its Ray worker is lost; it goes on' in line]) == 1
    _begin(pool, 'kill')
    ((_, answer),) = _wait(pool)
    assert answer.reason.startswith('its process was ended by SIGKILL')
    _begin(pool, f'wait {tmp_path}/a', f'wait {tmp_path}/b')
    on_ray.wait_for(lambda: (tmp_path / 'a').exists() and (tmp_path / 'b').exists())
    _begin(pool, 'never')  # For which there is no room.
    pool.send(signal.SIGINT)
    assert [answer.kind for _, answer in _wait(pool, 3)] == ['stopped', 'wait', 'wait']
  assert lines[-1] == 'left'


def _is_gone(host):
  try:
    return not ray.get(host.is_there.remote())
  except ray.exceptions.RayActorError:
    return True


def test_a_host_that_is_gone_when_a_run_begins_is_no_try_of_the_run(trials):
  build, lines = trials
  with build() as pool:
    _begin(pool, 'a', 'b')
    _wait(pool, 2)
    assert len(pool._idle) == 2
    for host in pool._idle:
      ray.kill(host)  # Which it asks for; it may still answer.
      on_ray.wait_for(lambda host=host: _is_gone(host))
    _begin(pool, 'c')
    assert _wait(pool)[0][1].kind == 'c'
    assert not lines


def test_there_is_room_for_as_many_runs_as_were_asked_for(trials):
  build, lines = trials
  with build(jobs=1) as pool:
    pool._at_work[None] = None
    assert not pool.has_room
    pool._at_work.clear()
    assert not lines
  with build(cpus=2):
    assert lines[1:] == ['No node of the cluster has room for 2 CPUs: waiting for one.']


def test_a_host_that_is_asked_to_stop_before_its_run_begins_stops_it(tmp_path):
  from scripts.cli import ray_trials

  (tmp_path / 'stub.py').write_text(_STUB)
  here = os.getcwd()
  host = ray_trials._Host(here, str(tmp_path / 'stub.py'), str(tmp_path / 'stub.py'))
  assert host.do(worker.Job([], 'first'), ('key',)).kind == 'first'
  host.stop()
  found = []
  run = threading.Thread(
    target=lambda: found.append(host.do(worker.Job([], f'wait {tmp_path}/a'), ('key',))),
    daemon=True,
  )
  run.start()
  run.join(300)
  assert [answer.kind for answer in found] == ['wait']
  host.close()


def test_a_signal_that_comes_while_a_run_is_given_to_a_host_reaches_it(trials, tmp_path):
  build, _ = trials
  with build() as pool:
    _begin(pool, 'first')
    _wait(pool)
    host = pool._host

    def interrupted():
      pool.send(signal.SIGINT)
      return host()

    pool._host = interrupted
    _begin(pool, f'wait {tmp_path}/a')
    ((ticket, answer),) = _wait(pool)
    assert ticket == 'wait'
    assert answer.kind in ('wait', 'stopped')  # Or the host had not answered yet.


def test_a_folder_that_a_node_does_not_see_is_a_reason(tmp_path):
  from scripts.cli import ray_trials

  host = ray_trials._Host(os.getcwd(), str(tmp_path / 'elsewhere'), worker_pool.WORKER)
  answer = host.do(worker.Job([], 'a'), None)
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
