"""Processes of runs: what they answer and print, and that they end with whoever wanted them."""

import multiprocessing
import os
import signal
import subprocess
import time

import pytest

from scripts.cli import command, signals, trainers, worker
from tests.helpers import fresh


class _Outcome:
  result, exit_code = None, 0


def _run(settings, last_round):
  os.write(1, b'from TensorFlow\n')
  os.write(2, f'round {last_round} of {settings.training.rounds}\n'.encode())
  folder = settings.output.output_dir
  if folder == 'killed':
    os.kill(os.getpid(), signal.SIGKILL)
  if folder == 'exits':
    os._exit(3)
  with signals.StopGuard() as stop:
    while os.path.isdir(folder) and not stop.requested:
      open(os.path.join(folder, 'begun'), 'w').close()
      time.sleep(0.01)
  if stop.requested:
    open(os.path.join(folder, 'saved'), 'w').close()
  _Outcome.exit_code = stop.exit_code
  return _Outcome


@pytest.fixture(autouse=True)
def _stub(monkeypatch):
  """Runs print and wait, in processes that are forked from this one."""
  monkeypatch.setattr(worker, '_CONTEXT', context := multiprocessing.get_context('fork'))
  monkeypatch.setattr(context, 'set_forkserver_preload', lambda names: None)
  monkeypatch.setattr(worker.multiprocessing.forkserver, 'ensure_running', lambda: None)
  monkeypatch.setattr(worker.run, 'run', _run)
  monkeypatch.setattr(worker.run, 'check_result', lambda result: None)


def _begin(host, tmp_path, *flags, last_round=None):
  host.begin(worker.Job(flags, str(tmp_path / 'logs' / 'a.log'), last_round))
  return host.answer


def _wait_for(path):
  while not path.exists():
    time.sleep(0.01)


def test_runs_are_answered_one_after_another_and_print_to_their_files(tmp_path):
  host = trainers.LocalHost()
  assert not host.stop(signal.SIGTERM)
  answer = _begin(host, tmp_path, '--rounds=7', last_round=3)
  assert answer(None) == worker.Answer('done')
  assert not host.stop(signal.SIGTERM)
  assert (tmp_path / 'logs' / 'a.log').read_text() == 'from TensorFlow\nround 3 of 7\n'
  answer = _begin(host, tmp_path, '--rounds=0')(None)
  assert answer.kind == 'failed'
  assert '--rounds must be' in answer.reason
  reason = 'its process was ended by SIGKILL: the system may have been short of memory.'
  assert _begin(host, tmp_path, '--output_dir=killed')(None).reason == reason
  reason = 'its process ended with exit code 3.'
  assert _begin(host, tmp_path, '--output_dir=exits')(None).reason == reason
  answer = _begin(host, tmp_path, f'--output_dir={tmp_path}')
  _wait_for(tmp_path / 'begun')
  assert answer() is None
  assert host.stop(signal.SIGTERM)
  assert answer(None) == worker.Answer('stopped')
  assert (tmp_path / 'saved').exists()
  process = multiprocessing.active_children
  _begin(host, tmp_path, f'--output_dir={tmp_path}')
  host.close()
  assert not process()


@pytest.mark.parametrize('number, saves', [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_a_run_ends_with_whoever_wanted_it(tmp_path, monkeypatch, number, saves):
  monkeypatch.setattr(trainers.LocalHost, 'last_signal', number)

  def want():
    _begin(trainers.LocalHost(), tmp_path, f'--output_dir={tmp_path}')
    time.sleep(600)

  process = multiprocessing.get_context('fork').Process(target=want)
  process.start()
  _wait_for(tmp_path / 'begun')
  process.kill()
  while (tmp_path / 'begun').exists():  # It makes it as long as it lives.
    (tmp_path / 'begun').unlink()
    time.sleep(0.1)
  assert (tmp_path / 'saved').exists() == saves


@pytest.mark.parametrize(
  'error, answer',
  [
    (command.DivergedError('no\nluck'), worker.Answer('diverged', 'no luck')),
    (command.FailureError('no disk'), worker.Answer('failed', 'no disk')),
    (ValueError('bad data'), worker.Answer('failed', 'bad data')),
    (KeyError('a'), worker.Answer('failed', "KeyError: 'a'")),
  ],
)
def test_an_error_is_an_answer(monkeypatch, error, answer):
  def run(settings, last_round):
    del settings, last_round
    raise error

  monkeypatch.setattr(worker.run, 'run', run)
  assert worker.do(worker.Job([], 'log')) == answer


_LOADS = """
from scripts.cli import preload
from tensorflow.python.eager import context
assert not context.context()._initialized
"""


def test_nothing_is_computed_before_a_fork():
  """TensorFlow's threads would not survive it."""
  subprocess.run([*fresh.python(), '-c', _LOADS], check=True)
