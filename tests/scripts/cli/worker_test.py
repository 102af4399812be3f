"""Runs in processes: what they answer, that what is done is not done again, signals and errors."""

import multiprocessing
import os
import signal
import subprocess
import threading
import time

import psutil
import pytest

from scripts.cli import command, resolve, signals, worker
from tests.helpers import fresh, sweep_pool
from tff_adaptive import training


class _Outcome:
  result, is_complete, exit_code = None, False, 0


def _blocked():
  return signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*signals.SIGNALS}


def _masked():
  assert _blocked() == {*signals.SIGNALS}  # The fork server inherits the mask.


def _run(settings, last_round):
  assert not _blocked()
  os.write(1, b'from TensorFlow\n')
  os.write(2, f'round {last_round} of {settings.training.rounds}\n'.encode())
  folder = settings.output.output_dir
  if folder.endswith('killed'):
    os.kill(os.getpid(), signal.SIGKILL)
  if folder.endswith('exits'):
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
  worker.run_lib.run, worker.run_lib.check_result = _run, lambda result: None
  signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)  # As the fork server does.
  _RUN_OF_A_PROCESS(*arguments)


def _stub(replace):
  """Runs print and wait, in new processes: a fork of this one may have threads that it lacks."""
  context = multiprocessing.get_context('spawn')
  replace(worker, '_CONTEXT', context)
  replace(context, 'set_forkserver_preload', lambda names: None)
  replace(worker.multiprocessing.forkserver, 'ensure_running', _masked)
  replace(worker, '_run', _stubbed)


def _settings(folder, rounds=3):
  return resolve.resolve(task='digits', rounds=rounds, output_dir=str(folder))


def _want(tmp_path):
  """Begins a run, and waits for ever."""
  _stub(setattr)
  worker.in_process(_settings(tmp_path), None, training.Stop())


def _wait_for(path):
  while not path.exists():
    time.sleep(0.01)


def test_runs_answer_print_to_their_files_and_end_saved_where_asked(tmp_path, monkeypatch):
  _stub(monkeypatch.setattr)
  stop = training.Stop()
  assert worker.in_process(_settings(tmp_path / 'a', 7), 3, stop) == worker.Answer('done')
  assert not _blocked()
  assert (tmp_path / 'logs' / 'a.log').read_text() == 'from TensorFlow\nround 3 of 7\n'
  for name, reason in (
    ('killed', 'its process was ended by SIGKILL: the system may have been short of memory.'),
    ('exits', 'its process ended with exit code 3.'),
  ):
    answer = worker.in_process(_settings(tmp_path / name), None, stop)
    assert answer == worker.Answer('failed', reason)
  assert worker._ended_with(0).reason == 'its process ended with exit code 0.'

  def ask():
    _wait_for(tmp_path / 'begun')
    stop.request()

  threading.Thread(target=ask).start()
  assert worker.in_process(_settings(tmp_path), None, stop) == worker.Answer('stopped')
  assert (tmp_path / 'saved').exists()


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
    (130, worker.Answer('stopped')),
    (0, worker.Answer('done')),
  ],
)
def test_an_error_or_an_exit_code_is_an_answer(monkeypatch, error, answer):
  def run(settings, last_round):
    assert (settings.training.rounds, last_round) == (7, 3)
    if isinstance(error, int):
      return worker.run_lib.Outcome(_Outcome, error)
    raise error

  monkeypatch.setattr(worker.run_lib, 'run', run)
  assert worker.do(['--rounds=7'], 3) == answer


def test_a_run_that_others_stop_has_failed_and_a_complete_one_is_not_done_again(
  tmp_path, monkeypatch, capsys
):
  run, stop = _settings(tmp_path / 'run'), training.Stop()
  monkeypatch.setattr(worker, 'in_process', lambda *unused: worker.Answer('stopped'))
  reason = 'its process was asked to end.'
  assert worker.train(run, None, stop) == worker.Answer('failed', reason)
  where = run.output.output_dir
  assert capsys.readouterr().err == f'{where}\n{where}: failed: {reason}\n'
  monkeypatch.setattr(worker, 'in_process', None)
  sweep_pool.write_run(run, 3, 0.5)
  assert worker.train(run, None, stop) == worker.Answer('done')
  assert capsys.readouterr().err == f'{run.output.output_dir}: complete already\n'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_runs_and_nothing_begins_after_it(tmp_path, monkeypatch, number):
  both, begun, found = threading.Barrier(2), [], []

  def in_process(run, last_round, stop):
    begun.append(run)
    if both.wait() == 0:
      os.kill(os.getpid(), number)
    while not stop.requested:
      pass
    return worker.Answer('failed', 'it had not begun')

  def task(train):
    found.extend(train(_settings(tmp_path), None) for _ in range(2))

  monkeypatch.setattr(worker, 'in_process', in_process)
  before = signal.getsignal(number)
  assert worker.share(iter([task] * 3), 2) == 128 + number
  assert len(begun) == 2
  assert found == [worker.Answer('stopped')] * 4
  assert signal.getsignal(number) is before


def test_an_error_of_a_task_saves_the_runs_of_the_others_and_is_raised(tmp_path, monkeypatch):
  both, found = threading.Barrier(2), []

  def in_process(run, last_round, stop):
    both.wait()
    while not stop.requested:
      pass
    return worker.Answer('stopped')

  def good(train):
    found.append(train(_settings(tmp_path), None))

  def bad(train):
    both.wait()
    raise ValueError('no such metric')

  monkeypatch.setattr(worker, 'in_process', in_process)
  with pytest.raises(ValueError, match='no such metric'):
    worker.share(iter([good, bad, bad]), 2)
  assert found == [worker.Answer('stopped')]


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
