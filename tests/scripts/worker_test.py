"""scripts/worker.py, and scripts/train.py with workers."""

import contextlib
import csv
import os
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest

from scripts import flags
from scripts import settings as settings_lib
from scripts.benchmarking import local_workers
from tff_adaptive import threads

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _command(script, *arguments):
  return [sys.executable, os.path.join(_ROOT, 'scripts', script), *arguments]


def _worker(*arguments):
  return subprocess.run(_command('worker.py', *arguments), capture_output=True, text=True)


def _train(folder, *arguments):
  return subprocess.Popen(
    _command('train.py', f'--output_dir={folder}', '--rounds_per_evaluation=50', *arguments),
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
    text=True,
  )


def _rows(folder):
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    return [
      {k: v for k, v in row.items() if not k.startswith('seconds_')} for row in csv.DictReader(file)
    ]


def _wait_for(condition, seconds=60):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'waited too long'
    time.sleep(0.05)


def test_help_teaches_at_once():
  began = time.monotonic()
  result = _worker('--help')
  assert time.monotonic() - began < 2  # TensorFlow alone takes longer.
  assert result.returncode == 0
  for said in ('--port', '--host', 'train.py --workers=', 'nothing is encrypted'):
    assert said in result.stdout


def test_a_busy_port_and_other_mistakes_are_told():
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    port = listener.getsockname()[1]
    for host in ('127.0.0.1', '0.0.0.0'):
      result = _worker(f'--port={port}', f'--host={host}')
      assert result.returncode == 2
      assert result.stderr == (
        f'worker.py: --port={port} is in use: give another one, or 0 for any that is free.\n'
      )
  for arguments, said in (
    (['--port=70000'], 'must be from 0 to 65535, found 70000'),
    (['--port=0', '--parallel_clients=0'], 'must be at least 1, found 0'),
    (['--port=0', '--host=no.such.host.invalid'], 'is no address of this machine'),
    ([], 'the following arguments are required: --port'),
  ):
    result = _worker(*arguments)
    assert result.returncode == 2
    assert said in result.stderr


def _children(process):
  return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_tffs_worker_ends_with_ours(number):
  workers = local_workers.LocalWorkers(1)
  try:
    (ours,) = workers.processes
    children = _children(ours)
    assert [child.name() for child in children] == ['worker_binary']
    ours.send_signal(number)
    assert ours.wait(20) == (-9 if number == signal.SIGKILL else 128 + number)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
  finally:
    workers.close()


@pytest.mark.parametrize('clients, expected', [(1 + os.cpu_count(), '1'), (1, None)])
def test_an_operation_gets_one_thread_if_clients_keep_the_processors_busy(
  clients, expected, monkeypatch
):
  if clients == threads.num_processors():
    pytest.skip('one client keeps the only processor busy')
  monkeypatch.delenv('TF_NUM_INTRAOP_THREADS', raising=False)
  workers = local_workers.LocalWorkers(1, f'--parallel_clients={clients}')
  try:
    (worker,) = _children(workers.processes[0])
    assert worker.environ().get('TF_NUM_INTRAOP_THREADS') == expected
  finally:
    workers.close()


def test_ours_ends_if_tffs_worker_does():
  workers = local_workers.LocalWorkers(1)
  try:
    (ours,) = workers.processes
    _children(ours)[0].kill()
    assert ours.wait(20) == 1
  finally:
    workers.close()


def test_only_the_address_given_is_open():
  workers = local_workers.LocalWorkers(1)
  try:
    (ours,) = workers.processes
    if '--host=0.0.0.0' in ours.args:
      pytest.skip('this system lets no process have a network of its own')
    port = int(workers.addresses[0].rpartition(':')[2])
    mine = {ours.pid, *(child.pid for child in _children(ours))}
    open_here = {
      connection.laddr
      for connection in psutil.net_connections('inet')
      if connection.status == psutil.CONN_LISTEN and connection.pid in mine
    }
    assert open_here == {('127.0.0.1', port)}
  finally:
    workers.close()


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['--workers=a:1', '--engine=native'], '--engine=native does not go with --workers'),
    (['--workers=a:1', '--clients_per_step=2'], '--clients_per_step does not go with --workers'),
    (['--workers=a:1', '--parallel_clients=2'], '--parallel_clients does not go with --workers'),
    (['--workers=a'], "--workers: 'a' is not host:port"),
    (['--workers=a:1,a:1'], '--workers: a:1 is given twice'),
    (['--workers=a:1,b:1', '--subrounds=1'], '--subrounds must be at least 2'),
    (['--subrounds=3'], '--subrounds is for --workers'),
  ],
)
def test_settings_that_do_not_go_together(arguments, message):
  with pytest.raises(ValueError) as caught:
    settings_lib.resolve(flags.parse(['train.py', *arguments]))
  assert message in str(caught.value)


def test_subrounds_follow_the_workers_and_a_resumed_run_may_have_others():
  few, many = (
    settings_lib.resolve(
      flags.parse(['train.py', '--workers=' + ','.join(f'h:{i}' for i in range(1, n))])
    )
    for n in (3, 8)
  )
  assert (few['subrounds'], many['subrounds']) == (4, 7)
  others = dict(few, workers='other:1')
  assert settings_lib.refused_changes(few, others) == []
  assert settings_lib.refused_changes(few, many) == ['--subrounds was 4 and is now 7']


@pytest.mark.slow
def test_a_run_whose_workers_all_die_goes_on_with_others(tmp_path):
  options = ['--algorithm=ada_best', '--rounds=20', '--rounds_per_checkpoint=2']
  with contextlib.closing(local_workers.LocalWorkers(3)) as workers:
    first, second, third = workers.addresses
    whole = _train(tmp_path / 'whole', *options, f'--workers={first}')
    broken = _train(tmp_path / 'broken', *options, f'--workers={second},{third}')
    path = tmp_path / 'broken' / 'metrics.csv'
    _wait_for(lambda: path.exists() and len(_rows(tmp_path / 'broken')) > 3)
    for process in workers.processes[1:]:
      process.kill()
    assert broken.wait(60) == 1
    said = broken.stderr.read()
    assert f'worker {second} is lost' in said
    assert 'all workers are lost' in said
    assert 'The rounds before are saved' in said

    assert whole.wait(120) == 0, whole.stderr.read()
    again = _train(tmp_path / 'broken', *options, f'--workers={first}')
    assert again.wait(120) == 0, again.stderr.read()
  assert _rows(tmp_path / 'broken') == _rows(tmp_path / 'whole')
