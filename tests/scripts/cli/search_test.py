"""The runs of a sweep's trials: what stops one, and what becomes of its trial."""

import pytest

from scripts.cli import resolve, worker

pytest.importorskip('optuna')
from scripts.cli import search


class _Claim:
  number, point = 0, {}

  def __init__(self):
    self.finished = []

  def finish(self, *result):
    self.finished.append(result)


@pytest.fixture
def begun(tmp_path):
  """A search of one trial with one run, its claim, and the lines that it says."""
  claim, lines = _Claim(), []
  claims = [claim]
  settings = resolve.resolve(task='digits', rounds=3, output_dir=str(tmp_path / 'run'))

  class Study:
    def claim(self):
      return claims.pop() if claims else None

  prepare = lambda claim: ([settings], [3])  # noqa: E731
  return search.Search(Study(), prepare, str(tmp_path), lines.append), claim, lines


def test_a_run_that_somebody_else_stops_goes_on_and_fails_in_the_end(begun):
  todo, claim, lines = begun
  for _ in range(3):
    ticket, _job, _key = todo.next()
    assert todo.next() is None
    todo.done(ticket, worker.Answer('stopped'))
  assert len(lines) == 3
  assert all(line.endswith('/run: its process was asked to end; it goes on') for line in lines)
  assert not claim.finished
  ticket, _job, _key = todo.next()
  todo.done(ticket, worker.Answer('stopped'))
  assert claim.finished == [('failed', None, 'its process was asked to end 4 times.')]
  assert todo.next() is None


def test_a_run_that_the_command_stops_stays_as_it_is(begun):
  todo, claim, lines = begun
  ticket, _job, _key = todo.next()
  todo.done(ticket, worker.Answer('stopped'), is_ending=True)
  assert not claim.finished
  assert not lines
  assert todo.next() is None
