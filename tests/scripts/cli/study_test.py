"""Studies: a trial belongs to one process, and to the next when that ends."""

import dataclasses
import os
import subprocess
import sys

import pytest

from scripts.cli import search_space

pytest.importorskip('optuna')
from scripts.cli import study

SPACE = search_space.Space({'tau': ['0.1', '0.2', '0.3']}, {})
GRID = study.Plan('grid')


def _states(of):
  return [view.state for view in of.views()]


def test_two_processes_share_the_trials_and_see_each_other(tmp_path):
  first = study.Study(str(tmp_path), SPACE, GRID)
  second = study.Study(str(tmp_path), SPACE, GRID)
  claims = [first.claim(), second.claim(), first.claim()]
  assert [claim.runs[0].server['tau'] for claim in claims] == [0.1, 0.2, 0.3]
  assert second.claim() is None
  claims[0].finish('done', 0.5)
  claims[1].finish('diverged', reason='no luck')
  claims[2].finish('failed', reason='no disk')
  for one in (first, second):
    assert _states(one) == ['done', 'diverged', 'failed']
    assert [view.reason for view in one.views()] == ['', 'no luck', 'no disk']
    assert one.claim() is None
  # What failed is tried again, under its number: once by all that start now, and by the next.
  third, fourth = (study.Study(str(tmp_path), SPACE, GRID) for _ in range(2))
  again = third.claim()
  assert (again.number, again.runs[0].server['tau']) == (2, 0.3)
  assert fourth.claim() is None
  again.finish('failed', reason='no disk yet')
  assert third.claim() is fourth.claim() is None
  study.Study(str(tmp_path), SPACE, GRID).claim().finish('done', 0.1)
  assert _states(fourth) == ['done', 'diverged', 'done']
  assert study.Study(str(tmp_path), SPACE, GRID).claim() is None


_KILLED = """
import os, sys
from tests.scripts.cli import study_test
from scripts.cli import study
plan = study.Plan('tpe', trials=2, first_rung=1)
claim = study.Study(sys.argv[1], study_test.DRAWN, plan).claim()
assert not claim.should_prune(1, 0.25)
print(claim.runs[0].server['tau'], flush=True)
os.kill(os.getpid(), 9)
"""
DRAWN = search_space.Space({'tau': search_space.Range(0.1, 0.9, False, False)}, {'rounds': 9})


def test_a_trial_whose_process_was_killed_goes_on_where_it_was(tmp_path):
  done = subprocess.run(
    [sys.executable, '-c', _KILLED, str(tmp_path)], capture_output=True, text=True
  )
  assert done.returncode == -9, done.stderr
  plan = study.Plan('tpe', trials=2, first_rung=1)
  found = study.Study(str(tmp_path), DRAWN, plan)
  assert _states(found) == ['running']
  claim = found.claim()
  assert (claim.number, str(claim.runs[0].server['tau'])) == (0, done.stdout.strip())
  following = found.claim()
  assert following.number == 1
  assert following.should_prune(1, 0.2)  # 0.25 was better.
  assert not claim.should_prune(3, 0.5)
  assert found.claim() is None


def test_a_trial_that_ends_while_another_process_looks_is_not_claimed_again(tmp_path, monkeypatch):
  first = study.Study(str(tmp_path), SPACE, GRID)
  second = study.Study(str(tmp_path), SPACE, GRID)
  claim, lock = first.claim(), second._lock

  def late_lock(number):  # After the trials were read, and before their locks are tried.
    if number == claim.number:
      claim.finish('done', 0.5)
    return lock(number)

  monkeypatch.setattr(second, '_lock', late_lock)
  assert second.claim().number == 1
  assert _states(second) == ['done', 'running', 'waiting']


def _journal(folder):
  return os.path.join(str(folder), study.JOURNAL)


def test_a_grid_whose_start_was_killed_while_it_was_queued_is_queued_whole(tmp_path):
  study.Study(str(tmp_path), SPACE, GRID)
  with open(_journal(tmp_path), 'rb') as file:
    lines = file.readlines()
  assert len(lines) == 5  # The study, its identity and the points.
  for kept in range(1, 5):
    with open(_journal(tmp_path), 'wb') as file:
      file.writelines([*lines[:kept], lines[kept][:9]])
    found = study.Study(str(tmp_path), SPACE, GRID)
    assert [view.point['tau'] for view in found.views()] == ['0.1', '0.2', '0.3'], kept


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda text: '{"op\n' + text, 'Unterminated string'),
    (lambda text: text + '{"op_code": 4\n', 'Expecting'),
    (lambda text: text.replace('"tau"', '"tua"'), "a trial has the settings {'tua': '0.1'}"),
    (lambda text: text.replace('CategoricalD', 'D'), 'Unknown distribution'),
  ],
)
def test_a_damaged_journal_is_refused_by_its_name(tmp_path, change, message):
  found = study.Study(str(tmp_path), SPACE, GRID)
  found.claim().finish('done', 0.5)
  with open(_journal(tmp_path), encoding='utf-8') as file:
    text = file.read()
  assert change(text) != text
  with open(_journal(tmp_path), 'w', encoding='utf-8') as file:
    file.write(change(text))
  with pytest.raises(ValueError, match=r'is damaged .*move it away') as raised:
    study.Study(str(tmp_path), SPACE, GRID)
  assert message in str(raised.value)
  assert _journal(tmp_path) in str(raised.value)


def test_rungs():
  assert study.Plan('grid', first_rung=2).rungs(30) == [2, 6, 18, 30]
  assert study.Plan('grid', first_rung=2, reduction_factor=4).rungs(8) == [2, 8]
  assert study.Plan('grid').rungs(8) == [8]


@pytest.mark.parametrize('cut', [1, 30])
def test_a_line_that_was_cut_off_is_dropped_and_not_written_on(tmp_path, cut):
  study.Study(str(tmp_path), SPACE, GRID).claim().finish('done', 0.5)
  path = tmp_path / study.JOURNAL
  whole = path.read_bytes()
  path.write_bytes(whole[:-cut])
  for _ in range(2):  # What the first writes, the second can read.
    claims = study.Study(str(tmp_path), SPACE, GRID)
    assert _states(claims)[1:] == ['waiting', 'waiting']
    claim = claims.claim()
    assert claim.number == 0  # That it was done is what was cut off.
    del claim, claims
  assert whole[: whole[:-cut].rfind(b'\n') + 1] in path.read_bytes()


def test_the_lock_of_a_killed_process_is_seen_to_be_old_from_a_relative_folder(
  tmp_path, monkeypatch
):
  seen, symlink = [], os.symlink

  def link(source, target):
    symlink(source, target)
    seen.append(os.path.exists(target))  # Optuna takes its age; False: it waits forever.

  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(os, 'symlink', link)
  study.Study('runs/rates', SPACE, GRID)
  assert seen
  assert all(seen)


@pytest.mark.parametrize(
  'changes, flag',
  [
    ({'search': 'random', 'search_seed': 2}, '--search, --search_seed:'),
    ({'metric': 'validation_f1'}, '--metric:'),
    ({'axes': {'tau': search_space.Range(0.01, 0.9, False, False)}}, '--grid or --range:'),
    ({'given': {'rounds': 10}}, '--rounds:'),
    ({'seeds': ('0',)}, '--grid=seed:'),
    ({'trials': 3}, None),
  ],
)
def test_another_search_is_refused_by_its_flags(tmp_path, changes, flag):
  plan = study.Plan('tpe', 2)
  study.Study(str(tmp_path), DRAWN, plan)
  of_plan = {name: value for name, value in changes.items() if hasattr(plan, name)}
  of_space = {name: value for name, value in changes.items() if name not in of_plan}
  other = dataclasses.replace(DRAWN, **of_space), dataclasses.replace(plan, **of_plan)
  if flag is None:
    study.Study(str(tmp_path), *other)
  else:
    with pytest.raises(ValueError, match=f'differs in {flag} give what it was, or another'):
      study.Study(str(tmp_path), *other)


def test_grids_and_random_draws_may_be_shown_by_another_metric(tmp_path):
  for metric in (None, 'validation_f1'):
    study.Study(str(tmp_path / 'a'), SPACE, study.Plan('grid', metric=metric))
    study.Study(str(tmp_path / 'b'), DRAWN, study.Plan('random', 2, metric=metric))
