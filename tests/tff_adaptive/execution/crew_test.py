"""Workers share tasks, and an error or a silent machine leaves nobody waiting."""

import threading

import pytest

from tff_adaptive.execution import connections, crew


class Worker:
  """A worker as the crew knows it; one that is silent answers when its connection is closed."""

  def __init__(self, address, is_silent=False):
    self.address, self._is_silent = address, is_silent
    self.closed = threading.Event()

  def knock(self):
    if self._is_silent:
      raise OSError('no route to it')

  def close(self):
    self.closed.set()

  def work(self):
    if self._is_silent:
      assert self.closed.wait(60)
      raise connections.WorkerLost('it was closed')


def test_an_error_is_raised_though_another_workers_machine_is_silent(monkeypatch):
  monkeypatch.setattr(crew, '_BEAT_SECONDS', 0.1)
  lines, silent_begins = [], threading.Event()
  silent, good = Worker('silent', is_silent=True), Worker('good')
  both = crew.Crew([silent, good])
  both.tell = lines.append

  def task(worker):
    if worker is silent:
      silent_begins.set()
    assert silent_begins.wait(60)
    worker.work()
    raise ValueError('an error of the computation')

  with pytest.raises(ValueError, match='an error of the computation'):
    both.run([task, task])
  assert silent.closed.is_set()
  assert not good.closed.is_set()
  assert [line.split(' (')[0] for line in lines] == ['Worker silent is lost']


def test_after_all_are_lost_the_next_work_tries_them_at_once():
  class Restarted(Worker):
    is_there = False

    def connect(self):
      self.is_there = True

  worker = Restarted('restarted')
  alone = crew.Crew([worker])
  alone.tell = lambda line: None

  def task(worker):
    if not worker.is_there:
      raise connections.WorkerLost('it ended')
    return 7

  with pytest.raises(crew.WorkersLost):
    alone.run([task])
  assert alone.run([task]) == [7]
