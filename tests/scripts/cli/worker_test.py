"""What forks runs: what they answer and print, and that they end with whoever wanted them."""

import signal
import subprocess
import sys
import time

import pytest

from scripts.cli import command, trainers, worker
from tests.helpers import fresh

_RUNS = """
import os, signal, sys, time
from scripts.cli import signals, worker

class Outcome:
  result, exit_code = None, 0

def run(settings, last_round):
  os.write(1, b'from TensorFlow\\n')
  sys.stderr.write(f'round {last_round} of {settings.training.rounds}\\n')
  folder = settings.output.output_dir
  if folder == 'killed': os.kill(os.getpid(), signal.SIGKILL)
  if folder == 'exits': os._exit(3)
  with signals.StopGuard() as stop:
    while os.path.isdir(folder) and not stop.requested:
      open(os.path.join(folder, 'begun'), 'w').close()
      time.sleep(0.01)
  if stop.requested: open(os.path.join(folder, 'saved'), 'w').close()
  Outcome.exit_code = stop.exit_code
  return Outcome

worker.run.run, worker.run.check_result = run, lambda result: None
worker._load = lambda: None
write = worker._write
def slow_write(*arguments):
  write(*arguments)
  time.sleep(0.1)  # The next run is there before the process of this one has ended.
worker._write = slow_write
sys.exit(worker.main(sys.argv))
"""


@pytest.fixture
def start(tmp_path):
  """Returns what starts a host of a worker whose runs print and wait; and what gives it a run."""

  def begin(*last_signal):
    return trainers.LocalHost(*last_signal, program=(sys.executable, '-c', _RUNS))

  def give(host, *flags, last_round=None):
    host.begin(worker.Job(flags, str(tmp_path / 'logs' / 'a.log'), last_round))
    return host.answer

  return begin, give


def _wait_for(path):
  while not path.exists():
    time.sleep(0.01)


def test_runs_are_answered_one_after_another_and_print_to_their_files(start, tmp_path):
  begin, give = start
  host = begin()
  assert not host.stop(signal.SIGTERM)
  assert give(host, '--rounds=7', last_round=3)(None) == worker.Answer('done')
  process = host._process
  assert (tmp_path / 'logs' / 'a.log').read_text() == 'from TensorFlow\nround 3 of 7\n'
  answer = give(host, '--rounds=0')(None)
  assert answer.kind == 'failed'
  assert '--rounds must be' in answer.reason
  by_kill = 'its process was ended by SIGKILL: the system may have been short of memory.'
  assert give(host, '--output_dir=killed')(None).reason == by_kill
  reason = 'its process ended with exit code 3.'
  assert give(host, '--output_dir=exits')(None).reason == reason
  answer = give(host, f'--output_dir={tmp_path}')
  _wait_for(tmp_path / 'begun')
  assert answer() is None
  assert host.stop(signal.SIGTERM)
  assert answer(None) == worker.Answer('stopped')
  assert (tmp_path / 'saved').exists()
  assert give(host, '--rounds=7')(None) == worker.Answer('done')  # The signal was for the run.
  assert host._process is process  # One forks all runs, and is replaced where it has ended.
  process.kill()
  process.wait()
  assert give(host, '--rounds=7')(None) == worker.Answer('failed', by_kill)
  assert give(host, '--rounds=7')(None) == worker.Answer('done')
  process = host._process
  host.close()
  assert process.returncode == 0


@pytest.mark.parametrize('number, saves', [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_a_run_ends_with_whoever_wanted_it(start, tmp_path, number, saves):
  """What is written to is closed when its process ends, however it ends."""
  begin, give = start
  give(host := begin(number), f'--output_dir={tmp_path}')
  process = host._process
  _wait_for(tmp_path / 'begun')
  process.stdout.close()  # Nobody is left to answer, either.
  process.stdin.close()
  assert process.wait() == 0
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
from scripts.cli import worker
worker._load()
from tensorflow.python.eager import context
assert not context.context()._initialized
"""


def test_nothing_is_computed_before_a_fork():
  """TensorFlow's threads would not survive it."""
  subprocess.run([*fresh.python(), '-c', _LOADS], check=True)
