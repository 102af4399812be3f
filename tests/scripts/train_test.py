"""scripts/train.py from outside: same seed same bits, faults survived, bad input refused."""

import contextlib
import io
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import time

import numpy as np
import psutil
import pytest

from scripts import train
from tests.helpers import fakes, fresh

_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
_ROUNDS = 110  # So many that a run goes on for seconds after a row that is waited for.
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


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """An uninterrupted run's folder."""
  folder = str(tmp_path_factory.mktemp('runs') / 'whole')
  with contextlib.redirect_stdout(io.StringIO()) as output:
    assert train.main(['train.py', *_FLAGS, f'--output_dir={folder}']) == 0
  assert 'validation_accuracy' in output.getvalue()
  assert '(15 evaluations)' in ' '.join(output.getvalue().split())
  assert folder in output.getvalue()
  return folder


def _processes(folder):
  """The processes that work in a folder."""
  found = []
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error):
      found += [process.pid] if process.cwd() == folder else []
  return found


def _interrupted(folder, number, num_rows):
  """Runs the script until it has so many rows more, and sends a signal; exit code and output."""
  path, place = os.path.join(folder, 'metrics.csv'), os.path.dirname(folder)
  before = len(_rows(folder)) if os.path.exists(path) else 0
  with subprocess.Popen(
    [*fresh.python(), _SCRIPT, *_FLAGS, f'--output_dir={folder}'],
    cwd=place,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  ) as process:
    try:
      while not (os.path.exists(path) and len(_rows(folder)) >= before + num_rows):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
      (trainer,) = {*_processes(place)} - {process.pid}
      os.kill(trainer, number)
      output, _ = process.communicate()  # It ends only when nobody holds the pipe.
    finally:
      process.kill()
  assert not _processes(place)
  return process.returncode, output


@pytest.mark.slow
def test_killed_interrupted_and_resumed_equals_uninterrupted_in_another_process(
  whole, tmp_path, capfd
):
  folder = str(tmp_path / 'run')
  code, _ = _interrupted(folder, signal.SIGKILL, 20)
  assert code == 128 + signal.SIGKILL
  killed_after = len(_rows(folder))
  code, output = _interrupted(folder, signal.SIGINT, 20)
  assert code == 128 + signal.SIGINT, output
  assert 'Resumed after round' in output
  assert 'Ending after this round' in output
  assert 'The same command goes on from here' in output
  stopped_after = len(_rows(folder)) - 1
  assert killed_after + 19 <= stopped_after < _ROUNDS
  with fakes.no_figures():
    assert train.main(['train.py', *_FLAGS, f'--output_dir={folder}']) == 0
  assert f'Resumed after round {stopped_after}.' in capfd.readouterr().err
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
  assert summary['evaluations_averaged'] == 15  # 14, 21, ... 105 and 110.
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
  command = ' '.join(
    [*fresh.python(), _SCRIPT, *flags, '--engine=native', f'--output_dir={folder}']
  )
  # A worker that holds the pipe would keep cat, and so the shell, from ending.
  shell = subprocess.Popen(
    f'{command} 2>&1 | cat > {tmp_path}/output', shell=True, start_new_session=True
  )
  try:
    assert shell.wait() == 0
    assert 'listens on all network interfaces' in (tmp_path / 'output').read_text()
  finally:
    with contextlib.suppress(ProcessLookupError):  # None is left.
      os.killpg(shell.pid, signal.SIGKILL)
  assert train.main(['train.py', *flags, f'--output_dir={tmp_path}/graph']) == 0
  for native, graph in zip(_rows(folder), _rows(tmp_path / 'graph')):
    assert native.keys() == graph.keys()
    for name in ('validation_loss', 'train_loss'):
      if native[name]:
        np.testing.assert_allclose(float(native[name]), float(graph[name]), rtol=1e-4)


def test_a_run_in_use_is_refused_and_stays_as_it_was(whole, capsys):
  def content():
    return _rows(whole), pathlib.Path(whole, 'config.json').read_text()

  before = content()
  with contextlib.closing(sqlite3.connect(f'{whole}/checkpoints/state.sqlite')) as used:
    used.execute('BEGIN EXCLUSIVE')
    more = f'--rounds={_ROUNDS + 10}'
    assert train.main(['train.py', *_FLAGS, f'--output_dir={whole}', more]) == 2
  assert 'another process is using it' in capsys.readouterr().err
  assert content() == before


def test_bad_data_is_refused_with_one_line_and_nothing_written(tmp_path, capsys, monkeypatch):
  truncated = tmp_path / 'truncated'
  truncated.mkdir()
  page, pages = (4096).to_bytes(2, 'big'), (99).to_bytes(4, 'big')
  header = b'SQLite format 3\0' + page + bytes(10) + pages + bytes(68)
  (truncated / 'emnist_all.sqlite').write_bytes(header + bytes(4096))
  (tmp_path / 'file').write_text('x')
  output_dir = f'--output_dir={tmp_path}/new/run'
  cases = [
    (['--task_option=alpha=1e-100', output_dir], 'alpha is 1e-100; it must be from 0.0001'),
    (['--task_option=nonsense=1', output_dir], 'nonsense'),
    (['--task=emnist_cr', f'--data_dir={tmp_path}/none', output_dir], 'no such folder'),
    (['--task=emnist_cr', f'--data_dir={truncated}', output_dir], 'incomplete'),
    (['--data_dir=/tmp', output_dir], 'has no files'),
    ([f'--output_dir={tmp_path}/file/run'], '/file/run cannot be written to (Not a directory)'),
    (['--tau=0', output_dir], '--tau'),
  ]
  for arguments, words in cases:
    assert train.main(['train.py', *arguments]) == 2, arguments
    error = capsys.readouterr().err
    assert words in error
    assert error.count('\n') == 1, error
  monkeypatch.setattr(
    'tff_adaptive_tasks.task.InMemoryClientData.num_examples', lambda self, c: 0 if c == '07' else 1
  )
  assert train.main(['train.py', output_dir]) == 2
  assert "client '07' has no examples" in capsys.readouterr().err
  assert sorted(os.listdir(tmp_path)) == ['file', 'truncated']


def test_an_error_is_all_that_a_program_that_ends_early_says(tmp_path):
  flags = ['--task=emnist_cr', f'--data_dir={tmp_path}', f'--output_dir={tmp_path / "run"}']
  done = subprocess.run([*fresh.python(), _SCRIPT, *flags], capture_output=True, text=True)
  assert (done.returncode, done.stdout) == (2, '')
  assert done.stderr.startswith('train.py: there is no emnist_all.sqlite in ')
  assert done.stderr.count('\n') == 1  # Nothing of TFF's own clean-up.
