"""scripts/train.py from outside: same seed same bits, faults survived, bad input refused."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time

import psutil
import pytest

from scripts import train
from tests.helpers import fakes, fresh

_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
_ROUNDS = 110
_CLIENTS = 4
# Its clients wait after some rounds while the working folder has a file named wait, so that no run
# ends before it is interrupted.
_TASK = """
import os, time
import tff_adaptive_tasks as tasks

def num_rows():
  if not os.path.exists('run/metrics.csv'):
    return 0
  with open('run/metrics.csv') as file:
    return len(file.readlines())

def load(data_dir, seed):
  task = tasks.load('synthetic', seed=seed)
  load_one = task.train.load

  def load_and_wait(client_id):
    while os.path.exists('wait') and num_rows() > 24:
      time.sleep(0.01)
    return load_one(client_id)

  task.train.load = load_and_wait
  return task
"""
_FLAGS = f"""
--client_epochs=1 --batch_size=10 --max_examples_per_client=30 --algorithm=ada_best
--server_optimizer=yogi --rounds={_ROUNDS} --clients_per_round={_CLIENTS} --beta=0.5
--rounds_per_evaluation=7 --rounds_per_checkpoint=4
--seed=5
""".split()


@pytest.fixture(scope='module')
def flags(tmp_path_factory):
  """Of all runs but for their folder."""
  path = tmp_path_factory.mktemp('task') / 'waiting.py'
  path.write_text(_TASK)
  return [f'--task={path}:load', *_FLAGS]


@pytest.fixture(scope='module')
def whole(flags, tmp_path_factory):
  """An uninterrupted run's folder."""
  folder = str(tmp_path_factory.mktemp('runs') / 'whole')
  with fakes.no_figures():
    assert train.main(['train.py', *flags, f'--output_dir={folder}']) == 0
  return folder


def _processes(folder):
  """The processes that work in a folder."""
  pids = []
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error):
      pids += [process.pid] if process.cwd() == folder else []
  return pids


def _interrupted(folder, flags):
  """Runs the script until it has twenty rows, and interrupts it; exit code and output."""
  path = os.path.join(folder, 'metrics.csv')
  place = os.path.dirname(folder)
  wait = pathlib.Path(place, 'wait')
  wait.touch()
  with subprocess.Popen(
    [*fresh.python(), _SCRIPT, *flags, f'--output_dir={folder}'],
    cwd=place,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  ) as process:
    try:
      while not (os.path.exists(path) and len(fakes.rows(folder)) >= 20):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
      (trainer,) = {*_processes(place)} - {process.pid}
      os.kill(trainer, signal.SIGINT)
      output = ''
      for line in process.stdout:  # It ends only when nobody holds the pipe.
        output += line
        if 'Ending and saving after' in line:
          wait.unlink()
    finally:
      process.kill()
  assert not _processes(place)
  return process.returncode, output


@pytest.mark.slow
@pytest.mark.exhaustive
def test_interrupted_and_resumed_equals_uninterrupted_in_another_process(
  whole, flags, tmp_path, capfd
):
  folder = str(tmp_path / 'run')
  code, output = _interrupted(folder, flags)
  assert code == 128 + signal.SIGINT, output
  assert 'Ending and saving after' in output
  assert 'The same command resumes the run' in output
  stopped_after = len(fakes.rows(folder)) - 1
  assert 19 <= stopped_after < _ROUNDS
  with fakes.no_figures():
    assert train.main(['train.py', *flags, f'--output_dir={folder}']) == 0
  assert f'Resumed after round {stopped_after}.' in capfd.readouterr().err
  assert len(fakes.rows(folder)) == _ROUNDS + 1
  assert fakes.rows(folder) == fakes.rows(whole)


def test_the_folder_holds_what_is_promised(whole):
  with open(os.path.join(whole, 'config.json')) as file:
    config = json.load(file)
  assert config['settings']['tau'] == 1e-3
  assert config['data']['clients'] == 30
  assert set(config['versions']) >= {'python', 'tensorflow', 'tensorflow-federated', 'numpy'}
  assert config['num_parameters'] == 610
  with open(os.path.join(whole, 'summary.json')) as file:
    summary = json.load(file)
  assert summary['is_complete']
  assert summary['last']['validation_accuracy'] > 0.6
  assert summary['evaluations_averaged'] == 15  # 14, 21, ... 105 and 110.
  assert summary['totals']['megabytes_up'] == pytest.approx(_ROUNDS * _CLIENTS * 610 * 4e-6)
  assert summary['totals']['local_steps'] == _ROUNDS * _CLIENTS * 3  # Batches of 10.
  assert {'curves.png', 'tensorboard', 'checkpoints'} <= set(os.listdir(whole))
  columns = fakes.rows(whole)[0]
  for name in ('validation_loss', 'inference_accuracy', 'h_norm', 'first_time_clients'):
    assert name in columns


@pytest.mark.slow
@pytest.mark.exhaustive
def test_with_the_native_engine_no_worker_is_left(tmp_path):
  flags = ['--algorithm=fed_avg', '--rounds=1', '--engine=native', f'--output_dir={tmp_path}/run']
  done = subprocess.run(  # It returns when nobody holds the pipe: no worker either.
    [*fresh.python(), _SCRIPT, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
  )
  assert done.returncode == 0, done.stdout
  assert 'listens on all network interfaces' in done.stdout


def test_a_run_in_use_is_refused_and_stays_as_it_was(whole, flags, capsys):
  def content():
    return fakes.rows(whole), pathlib.Path(whole, 'config.json').read_text()

  before = content()
  with contextlib.closing(sqlite3.connect(f'{whole}/checkpoints/state.sqlite')) as used:
    used.execute('BEGIN EXCLUSIVE')
    more = f'--rounds={_ROUNDS + 10}'
    assert train.main(['train.py', *flags, f'--output_dir={whole}', more]) == 2
  assert 'another process is using it' in capsys.readouterr().err
  assert content() == before
