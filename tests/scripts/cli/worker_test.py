"""A process for many runs: what may share it, what it answers, what it forgets."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from scripts.cli import command, resolve, worker
from tff_adaptive._utils import user_code

_PRINTS = """
import os, sys
from scripts.cli import worker

class Outcome:
  result, exit_code = None, 0

def run(settings, last_round):
  os.write(1, b'from TensorFlow\\n')
  sys.stderr.write(f'round {last_round} of {settings.training.rounds}\\n')
  return Outcome

worker.run.run, worker.run.check_result = run, lambda result: None
sys.exit(worker.main(['worker', '0']))
"""


def _key(**given):
  return worker.process_key(resolve.resolve(given))


def test_runs_share_a_process_but_for_what_a_process_decides_once(monkeypatch, tmp_path):
  monkeypatch.setattr(os, 'sched_getaffinity', lambda pid: {0, 1})
  plain = _key()
  assert plain is not None
  assert plain == _key(algorithm='ada_best', seed=3, rounds=7, client_learning_rate=0.3)
  assert plain == _key(parallel_clients=2)
  different = [_key(parallel_clients=1), _key(device='cpu'), _key(xla=True)]
  different.append(_key(mixed_precision='bfloat16'))
  path = tmp_path / 'mine.py'
  path.write_text('def task(): pass\n')
  different.append(_key(task=f'{path}:task'))
  assert len({plain, *different}) == 6
  path.write_text('def task(): return 1\n')
  assert _key(task=f'{path}:task') != different[-1]
  assert _key(engine='native') is None
  assert _key(subrounds=2) is None


@pytest.mark.parametrize(
  'error, answer',
  [
    (command.DivergedError('no\nluck'), worker.Answer('diverged', 'no luck')),
    (command.FailureError('no disk'), worker.Answer('failed', 'no disk')),
    (ValueError('bad data'), worker.Answer('failed', 'bad data')),
    (OSError('no disk'), worker.Answer('failed', 'no disk')),
    (KeyError('a'), worker.Answer('failed', "KeyError: 'a'", is_last=True)),
  ],
)
def test_an_error_is_an_answer_and_an_unknown_one_ends_the_process(monkeypatch, error, answer):
  def run(settings, last_round):
    del settings, last_round
    raise error

  monkeypatch.setattr(worker.run, 'run', run)
  assert worker.do(worker.Job([], 'log')) == answer


def test_what_a_run_prints_goes_to_its_file_and_answers_to_the_output(tmp_path):
  """In a process, for it is about what is open there."""
  job = {'flags': ['--rounds=7'], 'log': str(tmp_path / 'logs' / 'a.log'), 'last_round': 3}
  lines = json.dumps(job) + '\n' + json.dumps({**job, 'flags': ['--rounds=0']}) + '\n'
  done = subprocess.run(
    [sys.executable, '-c', _PRINTS], input=lines, capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  answers = [json.loads(line) for line in done.stdout.splitlines()]
  assert [answer['kind'] for answer in answers] == ['done', 'failed']
  assert '--rounds must be' in answers[1]['reason']
  assert (tmp_path / 'logs' / 'a.log').read_text() == 'from TensorFlow\nround 3 of 7\n'


_WAITS = """
import signal, sys, time
from scripts.cli import signals, worker

class Outcome:
  result, exit_code = None, 143

def run(settings, last_round):
  with signals.StopGuard() as stop:
    open(settings.output.output_dir, 'w').close()
    while not stop.requested:
      time.sleep(0.01)
  open(settings.output.output_dir + '-saved', 'w').close()
  return Outcome

worker.run.run, worker.run.check_result = run, lambda result: None
sys.exit(worker.main(sys.argv))
"""


@pytest.mark.parametrize('number, saves', [(signal.SIGTERM, True), (signal.SIGKILL, False)])
def test_a_run_ends_with_whoever_wanted_it(tmp_path, number, saves):
  """What is written to is closed when its process ends, however it ends."""
  process = subprocess.Popen(
    [sys.executable, '-c', _WAITS, str(int(number))],
    stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL,
  )
  job = {'flags': [f'--output_dir={tmp_path}/run'], 'log': str(tmp_path / 'log')}
  process.stdin.write(json.dumps(job).encode() + b'\n')
  process.stdin.flush()
  while not (tmp_path / 'run').exists():
    assert process.poll() is None
    time.sleep(0.01)
  process.stdin.close()
  assert process.wait() == (0 if saves else -number)
  assert (tmp_path / 'run-saved').exists() == saves


def test_nobody_is_left_to_answer():
  reader, writer = os.pipe()
  os.close(reader)
  program = 'import sys; from scripts.cli import worker; sys.exit(worker.main(["worker", "0"]))'
  done = subprocess.run(
    [sys.executable, '-c', program],
    input=json.dumps({'flags': ['--rounds=0'], 'log': os.devnull}) + '\n',
    stdout=writer,
    stderr=subprocess.PIPE,
    text=True,
  )
  os.close(writer)
  assert (done.returncode, 'Error' in done.stderr) == (0, False), done.stderr


def test_a_users_file_is_run_anew_for_each_run(tmp_path):
  (tmp_path / 'next_to_it.py').write_text('calls = []\n')
  path = tmp_path / 'mine.py'
  path.write_text(
    'import next_to_it\ndef f():\n  next_to_it.calls.append(1); return next_to_it.calls\n'
  )
  first, _ = user_code.load(f'{path}:f')
  assert first() == [1]
  assert user_code.load(f'{path}:f')[0]() == [1, 1]
  user_code.forget()
  assert user_code.load(f'{path}:f')[0]() == [1]
  assert 'json' in sys.modules
