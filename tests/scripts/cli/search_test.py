"""Processes of a search: how they end, and how the search ends with them."""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from scripts.cli import command, plan as plan_lib, search_space, signals
from tests.helpers import fresh

pytest.importorskip('optuna')
from scripts.cli import search, study, worker

SPACE = search_space.Space({'tau': ['0.1', '0.2', '0.3', '0.4']}, {'rounds': 3})
_ROOT = pathlib.Path(__file__).parents[3]


def _blocked():
  return signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*signals.SIGNALS}


def _train(run, last_round, stop):
  """Waits for the end, or ends as the process of the first trials shall."""
  assert not _blocked()
  if run.server['tau'] == 0.1:
    os.kill(os.getpid(), signal.SIGKILL)
  if run.server['tau'] == 0.2:
    return worker.Answer('failed', 'no disk')
  folder = pathlib.Path(run.output.output_dir)
  folder.mkdir()
  (folder / 'begun').touch()
  while not stop.requested:
    time.sleep(0.01)
  return worker.Answer('stopped')


def _work(*arguments):
  signal.pthread_sigmask(signal.SIG_BLOCK, signals.SIGNALS)  # As in the process to fork from.
  worker.train = _train
  search.work(*arguments)


def _start_process(target, arguments):
  """Starts a fork of the process that searches, which has imported all that is needed."""
  del target
  process = multiprocessing.get_context('fork').Process(target=_work, args=arguments)
  process.start()
  return process


def _search(folder):
  """Searches in a process of its own, which ends with the exit code."""
  search.start_process = _start_process
  sys.exit(search.search(str(folder), SPACE, plan_lib.Plan(jobs=2)))


@pytest.fixture
def searching(tmp_path):
  """A search of which two trials have ended, and two are under way."""
  process = multiprocessing.get_context('spawn').Process(target=_search, args=[tmp_path])
  process.start()
  for name in ('tau=0.3', 'tau=0.4'):
    while not (tmp_path / name / 'begun').exists():
      assert process.is_alive()
      time.sleep(0.05)
  yield process
  process.kill()
  process.join()


def _views(folder):
  return study.Study(str(folder), SPACE, plan_lib.Plan()).views()


def test_a_signal_ends_the_trials_which_wait_then_and_what_died_is_a_row(searching, tmp_path):
  os.kill(searching.pid, signal.SIGINT)
  searching.join()
  assert searching.exitcode == 128 + signal.SIGINT
  killed = 'its process was ended by SIGKILL: the system may have been short of memory.'
  states = [(view.state, view.reason) for view in _views(tmp_path)]
  assert states == [('failed', killed), ('failed', 'no disk'), ('waiting', ''), ('waiting', '')]


@pytest.mark.exhaustive
def test_trials_end_with_a_command_that_is_killed_and_wait_then(searching, tmp_path):
  workers = psutil.Process(searching.pid).children()
  searching.kill()
  psutil.wait_procs(workers)
  assert [view.state for view in _views(tmp_path)][2:] == ['waiting', 'waiting']


def test_a_process_that_ends_before_its_trial_ends_the_search(tmp_path, monkeypatch):
  class Dead:
    sentinel = os.open(os.devnull, os.O_RDONLY)
    exitcode = -signal.SIGSEGV

    def is_alive(self):
      return False

  monkeypatch.setattr(search, 'start_process', lambda target, arguments: Dead())
  monkeypatch.setattr(search, '_POLL', 0.0)
  with pytest.raises(command.FailureError, match=r'did not begin: .* ended by SIGSEGV'):
    search.search(str(tmp_path), SPACE, plan_lib.Plan())


_LOADS = """
import os
from scripts.cli import preload
assert os.getsid(0) == os.getpid()  # Ctrl-C reaches trials once: through the command.
from tensorflow.python.eager import context
assert not context.context()._initialized
"""


def test_nothing_is_computed_before_a_fork():
  """TensorFlow's threads would not survive it."""
  subprocess.run([*fresh.python(), '-c', _LOADS], check=True, cwd=_ROOT)


@pytest.mark.slow
def test_the_process_that_forks_ends_quietly():
  """It ends when the sweep has ended, and would show a traceback of TFF's on its terminal."""
  # A Python of its own: one that has been forked ends without taking its modules apart.
  program = [sys.executable, '-c', 'from scripts.cli import preload']
  done = subprocess.run(program, cwd=_ROOT, capture_output=True, text=True)
  assert (done.returncode, done.stdout, done.stderr) == (0, '', '')
