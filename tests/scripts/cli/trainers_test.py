"""Processes that train: shared where runs may share one, replaced where one has ended; signals."""

import concurrent.futures
import os
import signal
import sys
import time

import pytest

from scripts.cli import resolve, trainers, worker
from tests.helpers import sweep_pool

# Answers with its number and how many runs it has done; ends as the log's name says.
_STUB = """
import json, os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
runs = 0
for line in sys.stdin:
  runs += 1
  log = json.loads(line)['log']
  if log == 'kill': os.kill(os.getpid(), signal.SIGKILL)
  if log == 'wait':
    signal.sigwait([signal.SIGTERM])
    log = 'signal'
  print(json.dumps(dict(kind=log, reason=f'{os.getpid()} {runs}')), flush=True)
"""


@pytest.fixture
def host(tmp_path):
  path = tmp_path / 'stub.py'
  path.write_text(_STUB)
  made = trainers.LocalHost(program=(sys.executable, str(path)))
  yield made
  made.close()


def _do(host, log):
  return host.do(worker.Job([], log))


def test_one_process_forks_all_runs_and_is_replaced_where_it_has_ended(host):
  first, second = (_do(host, 'done').reason.split() for _ in range(2))
  assert (first[0], first[1], second[1]) == (second[0], '1', '2')
  reason = 'its process was ended by SIGKILL: the system may have been short of memory.'
  assert _do(host, 'kill') == worker.Answer('failed', reason)
  assert _do(host, 'done').reason.split()[0] != first[0]


def test_a_signal_reaches_a_run_that_has_begun(host):
  assert not host.stop(signal.SIGTERM)
  _do(host, 'done')
  assert not host.stop(signal.SIGTERM)  # The process is there, and does nothing.
  with concurrent.futures.ThreadPoolExecutor() as executor:
    answer = executor.submit(_do, host, 'wait')
    while not host.stop(signal.SIGTERM):
      time.sleep(0.01)
    assert answer.result().kind == 'signal'


class _Host:
  """Answers in order; waits for a signal in place of None."""

  def __init__(self, *answers):
    self.answers, self.sent, self.jobs, self.is_closed = list(answers), [], [], False

  def do(self, job):
    self.jobs.append(job)
    answer = self.answers.pop(0)
    while answer is None and not self.sent:
      time.sleep(0.01)
    return answer or worker.Answer('stopped')

  def stop(self, number):
    self.sent.append(number)
    return True

  def close(self):
    self.is_closed = True


def _settings(tmp_path, rounds=3):
  return resolve.resolve(task='digits', rounds=rounds, output_dir=str(tmp_path / 'run'))


def test_a_run_that_others_stop_has_failed(tmp_path):
  run = _settings(tmp_path)
  host = _Host(worker.Answer('done'), worker.Answer('stopped'))
  trainer = trainers.Trainer(host, [], lambda line: None)
  assert trainer.train(run, str(tmp_path)).kind == 'done'
  (job,) = host.jobs
  assert f'--output_dir={run.output.output_dir}' in job.flags
  assert job.log == str(tmp_path / 'logs' / 'run.log')
  assert trainer.train(run, str(tmp_path)).reason == 'its process was asked to end.'


def test_what_is_there_already_is_not_trained(tmp_path):
  lines, run = [], _settings(tmp_path)
  sweep_pool.write_run(run, 2, 0.5)
  trainer = trainers.Trainer(host := _Host(worker.Answer('done')), [], lines.append)
  assert trainer.train(run, str(tmp_path), last_round=2).kind == 'done'
  assert not host.jobs
  trainer.train(run, str(tmp_path))
  assert len(host.jobs) == 1
  sweep_pool.write_run(run, 3, 0.5)
  assert trainer.train(run, str(tmp_path)).kind == 'done'
  assert len(host.jobs) == 1
  assert lines == [f'{run.output.output_dir}: complete already']


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_all_runs_and_nothing_begins_after_them(tmp_path, number):
  hosts, found = [_Host(None), _Host(None)], []
  waiting = iter(hosts)

  def work(trainer):
    for _ in range(2):
      found.append(trainer.train(_settings(tmp_path), str(tmp_path)).kind)

  def tick(at_work):
    if at_work == 2 and all(host.jobs for host in hosts) and not hosts[0].sent:
      os.kill(os.getpid(), number)

  before = signal.getsignal(number)
  assert trainers.in_threads(work, lambda: 2, lambda: next(waiting), tick=tick) == number
  assert found == ['stopped'] * 4
  for host in hosts:
    assert host.sent == [number]  # A second one would end it without saving.
    assert host.is_closed
  assert signal.getsignal(number) is before


def test_an_error_in_a_thread_saves_the_runs_of_the_others_and_is_raised(tmp_path):
  hosts = [_Host(), _Host(None)]
  waiting = iter(hosts)

  def work(trainer):
    if trainer.host is hosts[1]:
      trainer.train(_settings(tmp_path), str(tmp_path))
    else:
      while not hosts[1].jobs:
        time.sleep(0.01)
      raise ValueError('no such metric')

  with pytest.raises(ValueError, match='no such metric'):
    trainers.in_threads(work, lambda: 2, lambda: next(waiting))
  assert hosts[1].sent == [signal.SIGTERM]
  assert hosts[1].is_closed
