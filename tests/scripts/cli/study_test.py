"""Studies: a trial belongs to one process, and to the next when that ends; what its runs decide."""

import dataclasses
import json
import math
import os

import pytest

from scripts.cli import plan as plan_lib, resolve, search_space, worker
from tests.helpers import sweep_pool

pytest.importorskip('optuna')
from scripts.cli import study

SPACE = search_space.Space({'tau': ['0.1', '0.2', '0.3']}, {})
GRID = plan_lib.Plan()


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


DRAWN = search_space.Space({'tau': search_space.Range(0.1, 0.9, False, False)}, {'rounds': 9})


def test_a_trial_whose_process_has_ended_goes_on_where_it_was(tmp_path):
  plan = plan_lib.Plan(search='tpe', trials=2, first_rung=1)
  before = study.Study(str(tmp_path), DRAWN, plan).claim()
  assert not before.should_prune(1, 0.25)
  before.close()  # As the system does to the files of a process that was killed.
  found = study.Study(str(tmp_path), DRAWN, plan)
  assert _states(found) == ['running']
  claim = found.claim()
  assert (claim.number, claim.runs[0].server) == (0, before.runs[0].server)
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


def test_a_grid_whose_start_was_killed_while_it_was_queued_is_queued_whole(tmp_path):
  study.Study(str(tmp_path), SPACE, GRID)
  journal = tmp_path / study.JOURNAL
  lines = journal.read_text().splitlines(keepends=True)
  assert len(lines) == 5  # The study, its identity and the points.
  for kept in range(1, 5):
    journal.write_text(''.join([*lines[:kept], lines[kept][:9]]))
    for _ in range(2):  # The line that was cut off is not written on: what is can be read.
      found = study.Study(str(tmp_path), SPACE, GRID)
      assert [view.point['tau'] for view in found.views()] == ['0.1', '0.2', '0.3'], kept


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda text: '{"op\n' + text, 'Unterminated string'),
    (lambda text: text + '{"op_code": 4\n', 'Expecting'),
    (lambda text: text.replace('point":{"tau', 'point":{"tua'), "the settings {'tua': '0.1'}"),
    (lambda text: text.replace('CategoricalD', 'D'), 'Unknown distribution'),
  ],
)
def test_a_damaged_journal_is_refused_by_its_name(tmp_path, change, message):
  study.Study(str(tmp_path), SPACE, GRID).claim().finish('done', 0.5)
  journal = tmp_path / study.JOURNAL
  journal.write_text(change(journal.read_text()))
  with pytest.raises(ValueError, match=rf'{journal} is damaged .*{message}.*move it away'):
    study.Study(str(tmp_path), SPACE, GRID)


def test_the_lock_of_a_killed_process_is_seen_to_be_old_from_a_relative_folder(
  tmp_path, monkeypatch
):
  seen, symlink = [], os.symlink

  def link(source, target):
    assert not os.path.lexists(target)  # Who had the lock before has released it.
    symlink(source, target)
    seen.append(os.path.exists(target))  # Optuna takes its age; False: it waits forever.

  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(os, 'symlink', link)
  study.Study('runs/rates', SPACE, GRID)
  assert {*seen} == {True}


@pytest.mark.parametrize(
  'of_plan, of_space, flags',
  [
    ({'search': 'random', 'search_seed': 2}, {}, '--search, --search_seed:'),
    ({'metric': 'validation_f1'}, {}, '--metric:'),
    ({}, {'axes': {'tau': search_space.Range(0.01, 0.9, False, False)}}, '--grid or --range:'),
    ({}, {'given': {'rounds': 10}}, '--rounds:'),
    ({}, {'given': {'rounds': 9, 'rounds_per_evaluation': 5}}, '--rounds_per_evaluation:'),
    ({}, {'given': {'rounds': 9, 'target': 0.5}}, '--target:'),
    ({'search': 'grid'}, {}, '--search:'),
    ({}, {'seeds': ('0',)}, '--grid=seed:'),
  ],
)
def test_another_search_is_refused_by_its_flags(tmp_path, of_plan, of_space, flags):
  for trials in (2, 3):  # Of more trials it is the same.
    study.Study(str(tmp_path), DRAWN, plan_lib.Plan(search='tpe', trials=trials))
  other = dataclasses.replace(DRAWN, **of_space), plan_lib.Plan(**{'search': 'tpe', **of_plan})
  with pytest.raises(ValueError, match=f'differs in {flags} give what it was, or another'):
    study.Study(str(tmp_path), *other)
  for metric in (None, 'validation_f1'):  # Nothing is compared before the table: it only shows.
    study.Study(f'{tmp_path}/x', DRAWN, plan_lib.Plan(search='random', trials=2, metric=metric))


def _do(folder, results):
  """Does a trial of two seeds, whose runs come to a validation loss each, or to an answer."""
  space = dataclasses.replace(DRAWN, seeds=('0', '1'))
  found = study.Study(str(folder), space, plan_lib.Plan(search='tpe', trials=1, first_rung=1))
  trained = []

  def train(run, last_round):
    trained.append((run.what.seed, last_round))
    if isinstance(result := results[run.what.seed], worker.Answer):
      return result
    sweep_pool.write_run(run, last_round or 9, result, 'validation_loss')
    return worker.Answer('done')

  found.claim().do(train)
  return found, trained


def test_a_trial_is_the_mean_of_its_seeds_reported_at_each_rung(tmp_path, capsys):
  found, trained = _do(tmp_path, [1.0, 2.0])
  assert trained == [(0, 1), (1, 1), (0, 3), (1, 3), (0, None), (1, None)]
  (trial,) = found._trials()
  assert trial.intermediate_values == {1: -1.5, 3: -1.5}  # Little of a loss is good.
  assert trial.value == -1.5
  assert 'Trial 1, round 3: validation_loss 1.5\n' in capsys.readouterr().err


@pytest.mark.parametrize(
  'results, state, reason',
  [
    ([worker.Answer('failed', 'no disk'), 1.0], 'failed', 'no disk'),
    ([worker.Answer('diverged', 'a'), worker.Answer('failed', 'b')], 'failed', 'b'),
    ([1.0, worker.Answer('diverged', 'no luck')], 'diverged', 'no luck'),
    ([1.0, math.nan], 'diverged', study.DIVERGED.format('validation_loss')),
    ([worker.Answer('done'), 1.0], 'failed', plan_lib._WAY_OUT),  # It has no files.
    ([worker.Answer('stopped'), worker.Answer('failed', 'b')], 'running', ''),
  ],
)
def test_a_run_that_comes_to_nothing_decides(tmp_path, results, state, reason):
  found, trained = _do(tmp_path, results)
  (view,) = found.views()
  assert (view.state, view.reason.rpartition('folder: ')[2]) == (state, reason)
  assert (found.claim() is not None) == (state == 'running')  # For whoever goes on.
  assert trained == [(0, 1), (1, 1)]


def test_a_run_is_read_whole_and_up_to_its_rung(tmp_path):
  assert plan_lib.Plan(first_rung=2).rungs(30) == [2, 6, 18, 30]
  assert plan_lib.Plan(first_rung=2, reduction_factor=4).rungs(8) == [2, 8]
  assert plan_lib.Plan().rungs(8) == [8]
  run = resolve.resolve(rounds=9, output_dir=str(tmp_path))
  sweep_pool.write_run(run, 9, 0.5)
  found = dataclasses.replace(GRID, window=2).read(str(tmp_path), 6)
  assert found.window == 2
  assert [row['round'] for row in found.rows] == [*range(7)]
  early = json.dumps({'is_complete': True, 'rounds': 4, 'stopped_at_target': True})
  sweep_pool.write_run(resolve.resolve(rounds=9, output_dir=str(tmp_path / 'early')), 4, 0.5)
  (tmp_path / 'early' / 'summary.json').write_text(early)
  assert len(GRID.read(str(tmp_path / 'early'), 9).rows) == 5  # It stopped at its target.
  with pytest.raises(ValueError, match=r'lacks round 10 in metrics\.csv: restore'):
    GRID.read(str(tmp_path), 11)
