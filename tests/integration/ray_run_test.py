"""`train.py --ray=local`, its node killed, goes on alone with the rows of one process."""

import contextlib
import csv
import glob
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from scripts import train
from tests.helpers import fresh
from tff_adaptive.engine.cluster import local_ray

pytest.importorskip('ray')
pytestmark = pytest.mark.xdist_group('ray')  # One cluster at a time.

_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
_COLUMNS = {'seconds_waiting', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_retried'}
_ROUNDS = 80  # So many that a run goes on for seconds after a round that is waited for.
_FLAGS = ['--task=digits', '--algorithm=ada_best', f'--rounds={_ROUNDS}', '--clients_per_round=7']
_FLAGS += ['--subrounds=3', '--rounds_per_checkpoint=2']
_ON_RAY = ['--ray=local', '--ray_workers=2', '--client_state_store=shards']


@pytest.fixture
def begin(request):
  """Starts runs, which end with the test."""

  def start(folder, arguments=(), python=(sys.executable,)):
    process = subprocess.Popen(
      [*python, _SCRIPT, *_FLAGS, f'--output_dir={folder}', *arguments],
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      text=True,
    )
    request.addfinalizer(process.kill)
    return process

  return start


def _end(process, code=0):
  _, lines = process.communicate()
  assert process.returncode == code, lines
  return lines


def _rows(folder):
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def _course(rows):
  of_where = ('seconds_', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_')
  return [{k: v for k, v in row.items() if not k.startswith(of_where)} for row in rows]


def _wait_for_round(folder, number, process):
  while process.poll() is None:
    with contextlib.suppress(FileNotFoundError):
      if len(_rows(folder)) > number:
        return
    time.sleep(0.01)


def _is_used(folder):
  return any(local_ray._uses(process, folder) for process in psutil.process_iter())


def _kill(process, *names):
  """Kills processes that a command has started, by their names."""
  with contextlib.suppress(psutil.Error):
    for child in psutil.Process(process.pid).children(recursive=True):
      with contextlib.suppress(psutil.Error):
        if child.name().startswith(names):
          child.kill()


def test_a_run_that_loses_its_node_saves_and_goes_on_as_one_process_would(tmp_path, begin):
  before = set(glob.glob('/tmp/tff-ray-*'))
  folder = tmp_path / 'ray'
  undisturbed = begin(tmp_path / 'alone', python=fresh.python())
  first = begin(folder, _ON_RAY)
  _wait_for_round(folder, 3, first)
  first.send_signal(signal.SIGSTOP)  # It is not to end while the raylet is looked for.
  _kill(first, 'raylet')
  first.send_signal(signal.SIGCONT)
  lines = _end(first, code=1)
  assert 'Starting 2 workers.' in lines
  assert "Ray's node process of this machine at 127.0.0.1:" in lines.splitlines()[-1]
  assert 3 <= len(_rows(folder)) - 1 < _ROUNDS - 2

  _end(begin(folder, python=fresh.python()))
  on_ray = _rows(folder)
  assert set(on_ray[1]) >= _COLUMNS
  assert float(on_ray[1]['bytes_to_workers']) > 1000
  _end(undisturbed)
  alone = _rows(tmp_path / 'alone')
  assert not set(alone[1]) & _COLUMNS
  assert _course(on_ray) == _course(alone)
  for _ in range(400):  # Other programs of this machine may have a Ray of their own.
    left = {f for f in set(glob.glob('/tmp/tff-ray-*')) - before if not _is_used(f)}
    if not left:
      break
    time.sleep(0.25)
  assert not left
