"""Studies: a trial belongs to one process, and to the next when that ends."""

import subprocess
import sys

import pytest

from scripts.cli import search_space

pytest.importorskip('optuna')
from scripts.cli import study

SPACE = search_space.Space({'tau': ['0.1', '0.2', '0.3']}, {}, (), {})
GRID = study.Plan('grid')


def _states(of):
  return [view.state for view in of.views()]


def test_two_processes_share_the_trials_and_see_each_other(tmp_path):
  first = study.Study(str(tmp_path), SPACE, GRID)
  second = study.Study(str(tmp_path), SPACE, GRID)
  claims = [first.claim(), second.claim(), first.claim()]
  assert [claim.point for claim in claims] == [{'tau': t} for t in ('0.1', '0.2', '0.3')]
  assert second.claim() is None
  claims[0].finish('done', 0.5)
  claims[1].finish('diverged', reason='no luck')
  claims[2].finish('failed', reason='no disk')
  for one in (first, second):
    assert _states(one) == ['done', 'diverged', 'failed']
    assert [view.reason for view in one.views()] == ['', 'no luck', 'no disk']
    assert one.claim() is None
  # A new start tries again what failed, under its number, and once.
  third, fourth = (study.Study(str(tmp_path), SPACE, GRID) for _ in range(2))
  again = third.claim()
  assert (again.number, again.point) == (2, {'tau': '0.3'})
  assert fourth.claim() is None
  again.finish('done', 0.1)
  assert _states(fourth) == ['done', 'diverged', 'done']
  assert study.Study(str(tmp_path), SPACE, GRID).claim() is None


_KILLED = """
import os, sys
from tests.scripts.cli import study_test
from scripts.cli import study
plan = study.Plan('tpe', trials=2, first_rung=1)
claim = study.Study(sys.argv[1], study_test.DRAWN, plan).claim()
assert not claim.should_prune(1, 0.25)
print(claim.point['tau'], flush=True)
os.kill(os.getpid(), 9)
"""
DRAWN = search_space.Space(
  {}, {'tau': search_space.Range(0.1, 0.9, False, False)}, (), {'rounds': 9}
)


def test_a_trial_whose_process_was_killed_goes_on_where_it_was(tmp_path):
  done = subprocess.run(
    [sys.executable, '-c', _KILLED, str(tmp_path)], capture_output=True, text=True
  )
  assert done.returncode == -9, done.stderr
  plan = study.Plan('tpe', trials=2, first_rung=1)
  found = study.Study(str(tmp_path), DRAWN, plan)
  assert _states(found) == ['running']
  claim = found.claim()
  assert (claim.number, claim.point['tau']) == (0, done.stdout.strip())
  assert claim.reported() == [1]
  following = found.claim()
  assert following.number == 1
  assert following.should_prune(1, 0.2)  # 0.25 was better.
  assert not claim.should_prune(3, 0.5)
  assert found.claim() is None


def test_rungs():
  assert study.Plan('grid', first_rung=2).rungs(30) == [2, 6, 18, 30]
  assert study.Plan('grid', first_rung=2, factor=4).rungs(8) == [2, 8]
  assert study.Plan('grid').rungs(8) == [8]


def test_a_damaged_journal_is_named(tmp_path):
  study.Study(str(tmp_path), SPACE, GRID)
  path = tmp_path / study.JOURNAL
  path.write_bytes(b'{"op\n' + path.read_bytes())
  with pytest.raises(ValueError, match=r'is damaged .* move it away'):
    study.Study(str(tmp_path), SPACE, GRID)
