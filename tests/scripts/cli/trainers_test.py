"""Tasks on hosts: what is there is not done again; signals and errors."""

import os
import signal

import pytest

from scripts.cli import resolve, trainers, worker
from tests.helpers import sweep_pool


class _Host:
  """Answers in order; waits for a signal in place of None."""

  def __init__(self, *answers):
    self.answers, self.sent, self.jobs, self.is_closed = list(answers), [], [], False

  def begin(self, job):
    self.jobs.append(job)

  def answer(self):
    if self.answers[0] is None and self.sent:
      self.answers[0] = worker.Answer('stopped')
    return self.answers[0] and self.answers.pop(0)

  def stop(self, number):
    self.sent.append(number)
    return True

  def close(self):
    self.is_closed = True


def _settings(tmp_path, rounds=3):
  return resolve.resolve(task='digits', rounds=rounds, output_dir=str(tmp_path / 'run'))


def _task(found, *runs):
  for run in runs:
    found.append((yield run if isinstance(run, tuple) else (run, None)))


def test_a_run_that_others_stop_has_failed(tmp_path, monkeypatch):
  run, found, lines = _settings(tmp_path), [], []
  host = _Host(worker.Answer('done'), worker.Answer('stopped'))
  monkeypatch.setattr(trainers, 'LocalHost', lambda: host)
  trainers.share(iter([_task(found, run, run)]), 1, lines.append)
  reason = 'its process was asked to end.'
  assert found == [worker.Answer('done'), worker.Answer('failed', reason)]
  assert lines == [f'{run.output.output_dir}: failed: {reason}']
  assert f'--output_dir={run.output.output_dir}' in host.jobs[0].flags
  assert host.jobs[0].log == str(tmp_path / 'logs' / 'run.log')


def test_what_is_there_already_is_not_trained(tmp_path, monkeypatch):
  run, lines = _settings(tmp_path), []
  for rounds, jobs in ((2, 1), (3, 0)):
    sweep_pool.write_run(run, rounds, 0.5)
    host = _Host(worker.Answer('done'))
    monkeypatch.setattr(trainers, 'LocalHost', lambda host=host: host)
    task = _task(found := [], (run, 2), run)
    trainers.share(iter([task]), 1, lines.append)
    assert [answer.kind for answer in found] == ['done', 'done']
    assert [job.last_round for job in host.jobs] == [None] * jobs
  assert lines == [f'{run.output.output_dir}: complete already']


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_all_runs_and_nothing_begins_after_them(tmp_path, monkeypatch, number):
  hosts, found, run = [_Host(None), _Host(None)], [], _settings(tmp_path)
  tasks = iter([_task(found, run, run) for _ in range(3)])
  monkeypatch.setattr(trainers, 'LocalHost', iter(hosts).__next__)

  def tick(at_work):
    if at_work == 2 and not hosts[0].sent:
      os.kill(os.getpid(), number)

  before = signal.getsignal(number)
  assert trainers.share(tasks, 2, tick=tick) == number
  assert [answer.kind for answer in found] == ['stopped'] * 4
  for host in hosts:
    assert host.sent == [number]  # A second one would end it without saving.
    assert len(host.jobs) == 1
    assert host.is_closed
  assert signal.getsignal(number) is before


def test_an_error_of_a_task_saves_the_runs_of_the_others_and_is_raised(tmp_path, monkeypatch):
  hosts, run = [_Host(None), _Host(worker.Answer('done'))], _settings(tmp_path)

  def bad():
    yield run, None
    raise ValueError('no such metric')

  tasks = iter([_task(found := [], run), bad(), bad()])
  monkeypatch.setattr(trainers, 'LocalHost', iter(hosts).__next__)
  with pytest.raises(ValueError, match='no such metric'):
    trainers.share(tasks, 2)
  assert hosts[0].sent == [signal.SIGTERM]
  assert found == [worker.Answer('stopped')]
  assert all(host.is_closed for host in hosts)
