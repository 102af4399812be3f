"""scripts/train.py from outside: same seed same bits, faults survived, bad input refused."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid

import numpy as np
import psutil
import pytest

from scripts import train
from tests.helpers import fakes

_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
_ROUNDS = 400  # So many that a run goes on for seconds after a row that is waited for.
_FLAGS = (
  '--task=digits',
  '--algorithm=ada_best',
  '--server_optimizer=yogi',
  '--client_state_store=disk',
  f'--rounds={_ROUNDS}',
  '--beta=0.5',
  '--rounds_per_evaluation=7',
  '--rounds_per_checkpoint=4',
  '--seed=5',
)


_rows = fakes.rows
_begun = []  # Processes.


class _Run:
  """A run of the script in a process of its own, whose descendants can be found."""

  def __init__(self, *arguments):
    self._mark = uuid.uuid4().hex
    self.process = subprocess.Popen(
      [sys.executable, _SCRIPT, *arguments],
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      env={**os.environ, 'TFF_ADAPTIVE_TEST': self._mark},
    )
    _begun.append(self.process)

  def wait_for(self, folder, num_rows):
    path = os.path.join(folder, 'metrics.csv')
    while not (os.path.exists(path) and len(_rows(folder)) >= num_rows):
      assert self.process.poll() is None, self.process.communicate()
      time.sleep(0.02)

  def end(self, number=None):
    """Returns the exit code and the output, which ends only when nobody holds the pipe."""
    if number is not None:
      self.process.send_signal(number)
    output, _ = self.process.communicate()
    assert self._survivors() == []
    return self.process.returncode, output

  def _survivors(self):
    found = []
    for process in psutil.process_iter():
      try:
        if process.environ().get('TFF_ADAPTIVE_TEST') == self._mark:
          found.append(process.cmdline())
      except psutil.Error:
        continue
    return found


@pytest.fixture(scope='module', autouse=True)
def no_run_outlives_its_test():
  yield
  for process in _begun:
    process.kill()


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """An uninterrupted run's folder."""
  folder = str(tmp_path_factory.mktemp('runs') / 'whole')
  code, output = _Run(*_FLAGS, f'--output_dir={folder}').end()
  assert code == 0, output
  assert 'validation_accuracy' in output
  assert '(16 evaluations)' in ' '.join(output.split())
  assert folder in output
  return folder


@pytest.mark.slow
def test_killed_interrupted_and_resumed_equals_uninterrupted_in_another_process(whole, tmp_path):
  folder = str(tmp_path / 'run')
  run = _Run(*_FLAGS, f'--output_dir={folder}')
  run.wait_for(folder, 30)
  code, _ = run.end(signal.SIGKILL)
  assert code == -signal.SIGKILL
  killed_after = len(_rows(folder))
  run = _Run(*_FLAGS, f'--output_dir={folder}')
  run.wait_for(folder, killed_after + 30)
  code, output = run.end(signal.SIGINT)
  assert code == 128 + signal.SIGINT, output
  assert 'Resumed after round' in output
  assert 'Ending after this round' in output
  assert 'The same command goes on from here' in output
  stopped_after = len(_rows(folder)) - 1
  assert killed_after + 29 <= stopped_after < _ROUNDS
  code, output = _Run(*_FLAGS, f'--output_dir={folder}').end()
  assert code == 0, output
  assert f'Resumed after round {stopped_after}.' in output
  assert len(_rows(folder)) == _ROUNDS + 1
  assert _rows(folder) == _rows(whole)


def test_the_folder_holds_what_is_promised(whole):
  with open(os.path.join(whole, 'config.json')) as file:
    config = json.load(file)
  assert config['settings']['tau'] == 1e-3
  assert config['data']['clients'] == 60
  assert set(config['versions']) >= {'python', 'tensorflow', 'tensorflow-federated', 'numpy'}
  assert config['num_parameters'] == 79_510
  with open(os.path.join(whole, 'summary.json')) as file:
    summary = json.load(file)
  assert summary['is_complete']
  assert summary['last']['validation_accuracy'] > 0.9
  assert summary['evaluations_averaged'] == 16  # 301, 308, ... 399 and 400.
  # 10 clients a round; scikit-learn's 1,438 images over 60 clients are 3 batches of 10 each.
  assert summary['totals']['megabytes_up'] == pytest.approx(_ROUNDS * 10 * 79_510 * 4e-6)
  assert summary['totals']['local_steps'] == _ROUNDS * 10 * 3
  assert {'curves.png', 'tensorboard', 'checkpoints'} <= set(os.listdir(whole))
  columns = _rows(whole)[0]
  for name in ('validation_loss', 'inference_accuracy', 'h_norm', 'first_time_clients'):
    assert name in columns


@pytest.mark.slow
def test_the_native_engine_gives_the_same_course_and_leaves_no_worker(tmp_path):
  flags = ('--algorithm=fed_avg', '--rounds=3', '--rounds_per_evaluation=1')
  folder = str(tmp_path / 'native')
  command = ' '.join([sys.executable, _SCRIPT, *flags, '--engine=native', f'--output_dir={folder}'])
  # A worker that holds the pipe would keep cat, and so the shell, from ending.
  shell = subprocess.Popen(
    f'{command} 2>&1 | cat > {tmp_path}/output', shell=True, start_new_session=True
  )
  try:
    assert shell.wait() == 0
  finally:
    with contextlib.suppress(ProcessLookupError):  # None is left.
      os.killpg(shell.pid, signal.SIGKILL)
  assert train.main(['train.py', *flags, f'--output_dir={tmp_path}/graph']) == 0
  for native, graph in zip(_rows(folder), _rows(tmp_path / 'graph')):
    assert native.keys() == graph.keys()
    for name in ('validation_loss', 'train_loss'):
      if native[name]:
        np.testing.assert_allclose(float(native[name]), float(graph[name]), rtol=1e-4)


def test_a_changed_flag_that_matters_is_refused_with_both_values(whole, capsys):
  changed = [*_FLAGS, f'--output_dir={whole}', '--tau=0.5', '--batch_size=3']
  assert train.main(['train.py', *changed]) == 2
  error = capsys.readouterr().err
  assert '--tau was 0.001 and is now 0.5' in error
  assert '--batch_size was 10 and is now 3' in error
  assert error.count('\n') == 1


def test_fewer_rounds_than_were_done_and_a_run_in_use_are_refused(whole, tmp_path, capsys):
  folder = str(tmp_path / 'copy')
  shutil.copytree(whole, folder)
  config = os.path.join(folder, 'config.json')

  def content():
    with open(config) as file:
      return _rows(folder), file.read()

  before = content()
  assert train.main(['train.py', *_FLAGS, f'--output_dir={folder}', '--rounds=20']) == 2
  assert f'has done {_ROUNDS} rounds already' in capsys.readouterr().err
  assert content() == before
  with contextlib.closing(sqlite3.connect(f'{folder}/checkpoints/state.sqlite')) as used:
    used.execute('BEGIN EXCLUSIVE')
    assert (
      train.main(['train.py', *_FLAGS, f'--output_dir={folder}', f'--rounds={_ROUNDS + 10}']) == 2
    )
  assert 'another process is using it' in capsys.readouterr().err
  assert content() == before


def test_bad_data_is_refused_with_one_line_and_nothing_written(tmp_path, capsys, monkeypatch):
  truncated, empty = tmp_path / 'truncated', tmp_path / 'empty'
  truncated.mkdir()
  empty.mkdir()
  page, pages = (4096).to_bytes(2, 'big'), (99).to_bytes(4, 'big')
  header = b'SQLite format 3\0' + page + bytes(10) + pages + bytes(68)
  (truncated / 'emnist_all.sqlite').write_bytes(header + bytes(4096))
  (tmp_path / 'file').write_text('x')
  output_dir = f'--output_dir={tmp_path}/new/run'
  cases = [
    (['--clients_per_round=61', output_dir], ['--clients_per_round', '61', 'from 1 to 60']),
    (['--task_option=alpha=-1', output_dir], ['alpha', '-1']),
    (['--task_option=alpha=1e-100', output_dir], ['alpha is 1e-100; it must be from 0.0001']),
    (['--task_option=nonsense=1', output_dir], ['nonsense']),
    (['--task=emnist_cr', f'--data_dir={tmp_path}/none', output_dir], ['no such folder']),
    (['--task=emnist_cr', f'--data_dir={empty}', output_dir], ['emnist_all.sqlite']),
    (['--task=emnist_cr', f'--data_dir={truncated}', output_dir], ['incomplete']),
    ([f'--output_dir={tmp_path}/file/run'], ['is not a folder']),
    (['--tau=0', output_dir], ['--tau']),
  ]
  for arguments, parts in cases:
    assert train.main(['train.py', *arguments]) == 2, arguments
    error = capsys.readouterr().err
    assert error.count('\n') == 1, error
    for part in parts:
      assert part in error
  monkeypatch.setattr(
    'tff_adaptive_tasks.task.InMemoryClientData.num_examples', lambda self, c: 0 if c == '07' else 1
  )
  assert train.main(['train.py', output_dir]) == 2
  assert "client '07' has no examples" in capsys.readouterr().err
  assert sorted(os.listdir(tmp_path)) == ['empty', 'file', 'truncated']


@pytest.mark.slow
def test_an_error_is_all_that_a_program_that_ends_early_says(tmp_path):
  run = _Run('--task=emnist_cr', f'--data_dir={tmp_path}', f'--output_dir={tmp_path / "run"}')
  code, output = run.end()
  assert code == 2
  assert output.startswith('train.py: there is no emnist_all.sqlite in ')
  assert output.count('\n') == 1  # Nothing of TFF's own clean-up.
