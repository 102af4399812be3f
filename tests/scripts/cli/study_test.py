"""Studies: a trial belongs to one process, and to the next when that ends."""

import os
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
  following = found.claim()
  assert following.number == 1
  assert following.should_prune(1, 0.2)  # 0.25 was better.
  assert not claim.should_prune(3, 0.5)
  assert found.claim() is None


def test_a_trial_that_ends_while_another_process_looks_is_not_claimed_again(tmp_path, monkeypatch):
  first = study.Study(str(tmp_path), SPACE, GRID)
  second = study.Study(str(tmp_path), SPACE, GRID)
  claim, lock = first.claim(), second._lock

  def late_lock(name, wait):  # After the trials were read, and before their locks are tried.
    if name == str(claim.number):
      claim.finish('done', 0.5)
    return lock(name, wait)

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
    (lambda text: text + '{"op_code": 4\n', 'Expecting'),
    (lambda text: text.replace('"tau"', '"tua"'), "a trial has the settings {'tua': '0.1'}"),
    (lambda text: text.replace('"point"', '"paint"'), 'a trial has the settings None'),
    (lambda text: text.replace('CategoricalD', 'D'), 'Unknown distribution'),
    (lambda text: text.replace('{"tau":"0.1"}', '{"tau":"0.4"}'), "settings {'tau': '0.4'}"),
    (lambda text: text.replace('datetime_start":"2', 'datetime_start":"x'), 'Invalid isoformat'),
    (lambda text: text.replace('choices', 'chaices'), "('choices')"),
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
  assert study.Plan('grid', first_rung=2, factor=4).rungs(8) == [2, 8]
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


def test_what_is_done_but_gone_is_done_again_under_its_number(tmp_path):
  first = study.Study(str(tmp_path), SPACE, GRID)
  for _ in range(3):
    first.claim().finish('done', 0.5)
  again = study.Study(str(tmp_path), SPACE, GRID, lambda number, point: point['tau'] != '0.2')
  assert _states(again) == ['done', 'waiting', 'done']
  claim = again.claim()
  assert (claim.number, claim.point) == (1, {'tau': '0.2'})
  assert again.claim() is None
  claim.finish('done', 0.5)
  assert study.Study(str(tmp_path), SPACE, GRID).claim() is None


def test_another_search_is_refused_by_its_flags(tmp_path):
  study.Study(str(tmp_path), DRAWN, study.Plan('random', 2, seed=1))
  with pytest.raises(ValueError, match='differs in --search, --search_seed, --reduction_factor:'):
    study.Study(str(tmp_path), DRAWN, study.Plan('tpe', 2, seed=2, factor=4))


@pytest.mark.parametrize(
  'space, values', [(DRAWN, {'search': 'tpe', 'trials': 2}), (SPACE, {'search': 'grid'})]
)
def test_trials_that_are_compared_are_so_by_one_metric(tmp_path, space, values):
  def begin(**more):
    return study.Study(str(tmp_path), space, study.Plan(**values, **more))

  begin()
  if values['search'] == 'grid':  # Compared in the table only.
    begin(metric='validation_f1')
  else:
    with pytest.raises(ValueError, match='differs in --metric: give what it was, or another'):
      begin(metric='validation_f1')


def test_a_damaged_journal_is_named(tmp_path):
  study.Study(str(tmp_path), SPACE, GRID)
  path = tmp_path / study.JOURNAL
  path.write_bytes(b'{"op\n' + path.read_bytes())
  with pytest.raises(ValueError, match=r'is damaged .* move it away'):
    study.Study(str(tmp_path), SPACE, GRID)
