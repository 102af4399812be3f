"""The processes: shared where runs may share one, replaced where one has ended."""

import pytest

from scripts.cli import worker, worker_pool

# Answers with its number and how many runs it has done; ends as the log's name says.
_STUB = """
import json, os, signal, sys
runs = 0
for line in sys.stdin:
  runs += 1
  log = json.loads(line)['log']
  if log == 'kill': os.kill(os.getpid(), signal.SIGKILL)
  if log == 'exit': sys.exit(3)
  if log == 'wait':
    signal.sigwait([signal.SIGTERM])
    log = 'signal'
  answer = dict(kind=log, reason=f'{os.getpid()} {runs}', is_last=log == 'last')
  print(json.dumps(answer), flush=True)
"""


@pytest.fixture(autouse=True)
def _stub(tmp_path, monkeypatch):
  path = tmp_path / 'stub.py'
  path.write_text('import signal\nsignal.pthread_sigmask(0, [signal.SIGTERM])\n' + _STUB)
  monkeypatch.setattr(worker_pool, 'WORKER', str(path))


def _run(pool, log, key=('a',), ticket=None):
  pool.begin(ticket or log, worker.Job([], log), key)
  return _wait(pool)


def _wait(pool):
  found = pool.wait(600)  # The first that ends; none if it never does.
  return found[0]


def test_runs_share_a_process_where_their_keys_are_the_same():
  with worker_pool.WorkerPool(1) as pool:
    answers = [_run(pool, 'done', key)[1].reason.split() for key in ('aabb', 'aabb', 'c', 'c')]
    assert answers[0][0] == answers[1][0] != answers[2][0] == answers[3][0]
    assert [runs for _, runs in answers] == ['1', '2', '1', '2']
    alone = [_run(pool, 'done', None)[1].reason.split() for _ in range(2)]
    assert alone[0][0] != alone[1][0]
    assert pool.pids() == []  # They have ended.


def test_a_process_that_ends_is_a_failed_run_with_its_reason_and_is_replaced():
  with worker_pool.WorkerPool(1) as pool:
    assert _run(pool, 'kill')[1] == worker.Answer(
      'failed',
      'its process was ended by SIGKILL: the system may have been short of memory.',
      is_last=True,
    )
    assert _run(pool, 'exit')[1].reason == 'its process ended with exit code 3.'
    first = _run(pool, 'last')[1].reason.split()[0]
    second = _run(pool, 'done')[1].reason.split()[0]
    assert first != second


def test_signals_reach_the_processes_at_work_and_answers_their_runs():
  with worker_pool.WorkerPool(2) as pool:
    assert pool.has_room
    pool.begin('x', worker.Job([], 'wait'), ('a',))
    assert pool.has_room
    ticket, answer = _run(pool, 'done', ticket='y')
    assert (ticket, answer.kind) == ('y', 'done')
    assert pool.tickets == ['x']
    assert len(pool.pids()) == 2
    pool.send(15)
    ticket, answer = _wait(pool)
    assert (ticket, answer.kind) == ('x', 'signal')


def test_a_signal_that_comes_while_a_run_begins_reaches_it_once(monkeypatch):
  with worker_pool.WorkerPool(1) as pool:
    _run(pool, 'done')  # Its process is there, and does nothing.
    pool.send(15)  # Between the look whether there was one and the begin.
    assert _run(pool, 'wait', ticket='x')[1].kind == 'signal'
    begin, sent = worker_pool._Process.begin, []

    def interrupted(process, *arguments):
      begin(process, *arguments)
      pool.send(15)

    monkeypatch.setattr(worker_pool._Process, 'begin', interrupted)
    monkeypatch.setattr(worker_pool._Process, 'send', _noted(sent))
    assert _run(pool, 'wait', ticket='y')[1].kind == 'signal'
    assert sent == [15]  # A second one would end it without saving.


def _noted(sent):
  send = worker_pool._Process.send

  def noted(process, number):
    sent.append(number)
    send(process, number)

  return noted
