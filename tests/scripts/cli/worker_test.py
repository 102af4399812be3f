"""Processes of runs: what they answer and print, and that they end with whoever wanted them."""

import multiprocessing
import os
import signal
import subprocess
import time

import psutil
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


_RUN_OF_A_PROCESS = worker._run


def _stubbed(*arguments):
  """What a process does: the run is a stub."""
  worker.run.run, worker.run.check_result = _run, lambda result: None
  _RUN_OF_A_PROCESS(*arguments)


def _stub(replace):
  """Runs print and wait, in new processes: a fork of this one may have threads that it lacks."""
  context = multiprocessing.get_context('spawn')
  replace(worker, '_CONTEXT', context)
  replace(context, 'set_forkserver_preload', lambda names: None)
  replace(worker.multiprocessing.forkserver, 'ensure_running', lambda: None)
  replace(worker, '_run', _stubbed)


def _want(tmp_path):
  """Begins a run, and waits for ever."""
  _stub(setattr)
  _begin(trainers.LocalHost(), tmp_path, f'--output_dir={tmp_path}')
  time.sleep(600)


def _begin(host, tmp_path, *flags, last_round=None):
  host.begin(worker.Job(flags, str(tmp_path / 'logs' / 'a.log'), last_round))


def _answer(host):
  while (answer := host.answer()) is None:
    time.sleep(0.01)
  return answer


def _wait_for(path):
  while not path.exists():
    time.sleep(0.01)


def test_runs_are_answered_one_after_another_and_print_to_their_files(tmp_path, monkeypatch):
  _stub(monkeypatch.setattr)
  host = trainers.LocalHost()
  assert not host.stop(signal.SIGTERM)
  _begin(host, tmp_path, '--rounds=7', last_round=3)
  assert _answer(host) == worker.Answer('done')
  assert not host.stop(signal.SIGTERM)
  assert (tmp_path / 'logs' / 'a.log').read_text() == 'from TensorFlow\nround 3 of 7\n'
  _begin(host, tmp_path, '--rounds=0')
  answer = _answer(host)
  assert answer.kind == 'failed'
  assert '--rounds must be' in answer.reason
  reason = 'its process was ended by SIGKILL: the system may have been short of memory.'
  _begin(host, tmp_path, '--output_dir=killed')
  assert _answer(host).reason == reason
  reason = 'its process ended with exit code 3.'
  _begin(host, tmp_path, '--output_dir=exits')
  assert _answer(host).reason == reason
  _begin(host, tmp_path, f'--output_dir={tmp_path}')
  _wait_for(tmp_path / 'begun')
  assert host.answer() is None
  assert host.stop(signal.SIGTERM)
  assert _answer(host) == worker.Answer('stopped')
  assert (tmp_path / 'saved').exists()
  (tmp_path / 'begun').unlink()
  _begin(host, tmp_path, f'--output_dir={tmp_path}')
  _wait_for(tmp_path / 'begun')
  host.close()
  assert not host.stop(signal.SIGTERM)


def test_a_run_ends_with_whoever_wanted_it(tmp_path):
  process = multiprocessing.get_context('spawn').Process(target=_want, args=(tmp_path,))
  process.start()
  _wait_for(tmp_path / 'begun')
  (run,) = psutil.Process(process.pid).children()
  process.kill()
  while run.is_running() and run.status() != psutil.STATUS_ZOMBIE:
    time.sleep(0.01)
  assert (tmp_path / 'saved').exists()


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
import os
from scripts.cli import preload
assert os.getsid(0) == os.getpid()  # Ctrl-C reaches runs once: through the command.
from tensorflow.python.eager import context
assert not context.context()._initialized
"""


def test_nothing_is_computed_before_a_fork():
  """TensorFlow's threads would not survive it."""
  subprocess.run([*fresh.python(), '-c', _LOADS], check=True)
