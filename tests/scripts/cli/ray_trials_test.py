"""Runs of a sweep on a Ray cluster: hosts that die, signals, room."""

import multiprocessing
import os
import signal
import sys

import pytest

from scripts.cli import ray_trials, worker
from tests.helpers import on_ray

ray = pytest.importorskip('ray')
pytest.importorskip('optuna')
pytestmark = pytest.mark.xdist_group('ray')  # In one process of pytest, which has the cluster.


def _do(job):
  """Answers with its parent's number; ends what the log's name says, a host if a file says so."""
  name, _, path = job.log.partition(' ')
  if name == 'host' and os.path.exists(path):
    os.unlink(path)
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(0)
  if name == 'kill':
    os.kill(os.getpid(), signal.SIGKILL)
  if name == 'wait':
    open(path, 'w').close()
    signal.sigwait([signal.SIGTERM])
  return worker.Answer(name, str(os.getppid()))


class _Host(ray_trials.NodeHost):
  """Its runs are forked from it, and do that."""

  def __init__(self, *arguments):
    super().__init__(*arguments)

    def start(job, last_signal):
      del last_signal
      answers, writer = multiprocessing.Pipe(duplex=False)
      fork = multiprocessing.get_context('fork')
      process = fork.Process(target=lambda: writer.send(_do(job)))
      mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
      process.start()
      signal.pthread_sigmask(signal.SIG_SETMASK, mask)
      writer.close()
      return process, answers

    worker.start = start


@pytest.fixture(autouse=True)
def nodes(ray_nodes):
  """Two nodes of one processor each, which this process has joined."""


@pytest.fixture
def cluster(monkeypatch):
  """What joins with such hosts, and the lines that are said."""
  ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
  monkeypatch.setattr(ray_trials, 'NodeHost', _Host)
  lines = []

  def join(jobs=None, cpus=1):
    return ray_trials.cluster('auto', jobs, cpus, 0.0, __file__, lines.append)

  return join, lines


def _answer(host, log):
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
    assert _answer(hosts[0], 'a').reason == parents[0]  # Which does what comes next.
    other = _answer(hosts[0], f'host {tmp_path}/now')
    assert other.kind == 'host'
    assert other.reason not in parents
    assert not (tmp_path / 'now').exists()  # The host was killed.
    assert _answer(hosts[1], 'kill').reason.startswith('its process was ended by SIGKILL')
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
  host = ray_trials.NodeHost(os.getcwd(), str(tmp_path / 'elsewhere'))
  answer = host.do(worker.Job([], 'a'))
  assert answer.kind == 'failed'
  assert 'give a folder that all nodes share' in answer.reason
