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


def test_a_run_that_others_stop_has_failed(tmp_path):
  run, found, lines = _settings(tmp_path), [], []
  host = _Host(worker.Answer('done'), worker.Answer('stopped'))
  trainers.share(iter([_task(found, run, run)]), lambda: 1, lambda: host, lines.append)
  reason = 'its process was asked to end.'
  assert found == [worker.Answer('done'), worker.Answer('failed', reason)]
  assert lines == [f'{run.output.output_dir}: failed: {reason}']
  assert f'--output_dir={run.output.output_dir}' in host.jobs[0].flags
  assert host.jobs[0].log == str(tmp_path / 'logs' / 'run.log')


def test_what_is_there_already_is_not_trained(tmp_path):
  run, lines = _settings(tmp_path), []
  for rounds, jobs in ((2, 1), (3, 0)):
    sweep_pool.write_run(run, rounds, 0.5)
    host = _Host(worker.Answer('done'))
    task = _task(found := [], (run, 2), run)
    trainers.share(iter([task]), lambda: 1, lambda host=host: host, lines.append)
    assert [answer.kind for answer in found] == ['done', 'done']
    assert [job.last_round for job in host.jobs] == [None] * jobs
  assert lines == [f'{run.output.output_dir}: complete already']


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_all_runs_and_nothing_begins_after_them(tmp_path, number):
  hosts, found, run = [_Host(None), _Host(None)], [], _settings(tmp_path)
  waiting, tasks = iter(hosts), iter([_task(found, run, run) for _ in range(3)])

  def tick(at_work):
    if at_work == 2 and not hosts[0].sent:
      os.kill(os.getpid(), number)

  before = signal.getsignal(number)
  assert trainers.share(tasks, lambda: 2, lambda: next(waiting), tick=tick) == number
  assert [answer.kind for answer in found] == ['stopped'] * 4
  for host in hosts:
    assert host.sent == [number]  # A second one would end it without saving.
    assert len(host.jobs) == 1
    assert host.is_closed
  assert signal.getsignal(number) is before


def test_an_error_of_a_task_saves_the_runs_of_the_others_and_is_raised(tmp_path):
  hosts, run = [_Host(None), _Host(worker.Answer('done'))], _settings(tmp_path)

  def bad():
    yield run, None
    raise ValueError('no such metric')

  waiting, tasks = iter(hosts), iter([_task(found := [], run), bad(), bad()])
  with pytest.raises(ValueError, match='no such metric'):
    trainers.share(tasks, lambda: 2, lambda: next(waiting))
  assert hosts[0].sent == [signal.SIGTERM]
  assert found == [worker.Answer('stopped')]
  assert all(host.is_closed for host in hosts)
