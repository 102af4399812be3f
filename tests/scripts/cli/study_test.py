"""Studies: a trial belongs to one process, and to the next one when that process has ended."""

import contextlib
import dataclasses
import os
import shutil
import sqlite3

import pytest

from scripts.cli import plan as plan_lib, search_space

pytest.importorskip('optuna')
import optuna
import sqlalchemy

from scripts.cli import study
from tff_adaptive import runs

SPACE = search_space.Space({'tau': ['0.1', '0.2', '0.3']}, {})
GRID = plan_lib.Plan()
DRAWN = search_space.Space({'tau': search_space.Range(0.1, 0.9, False, False)}, {'rounds': 9})
TPE = plan_lib.Plan(search='tpe', trials=3, first_rung=1)


class _Killed(BaseException):
  """In place of a signal that ends a process at once."""


def _do(trials, worker='a', value=0.5, error=None):
  """Does the next trial: it ends with a value or an error. Returns its number and its tau."""
  attempts = []

  def objective(trial):
    attempt = trials.begin(trial, worker)
    attempts.append((attempt.number, attempt.runs[0].server['tau']))
    if error is not None:
      raise error
    return value

  with contextlib.suppress(_Killed):
    trials.do_next(objective)
  return attempts[0] if attempts else None


def _states(trials):
  return [view.state for view in trials.views()]


def test_each_trial_is_done_once_by_one_of_two_processes(tmp_path):
  first = study.Study(str(tmp_path), SPACE, GRID)
  second = study.Study(str(tmp_path), SPACE, GRID)
  taken = [_do(one, value=0.5) for one in (first, second, first)]
  assert taken == [(0, 0.1), (1, 0.2), (2, 0.3)]
  assert _do(first) is None
  assert _states(first) == _states(second) == ['done', 'done', 'done']


def test_a_folder_whose_path_is_too_long_for_sqlite_is_refused_before_it_is_made(tmp_path):
  def folder(length):
    """A folder in which the path of the study has so many bytes."""
    missing = length - len(os.fsencode(tmp_path / study.FILE)) - 1
    number = missing // 51 - 1
    parts = ['x' * 50] * number
    last = 'x' * (missing - 51 * number)
    return str(tmp_path.joinpath(*parts, last))

  assert _states(study.Study(folder(504), SPACE, GRID)) == ['waiting'] * 3
  for length in (505, 700):
    with pytest.raises(runs.ResumeError, match=r'too long by \d+ bytes: with study.sqlite .* 504'):
      study.Study(folder(length), SPACE, GRID)
    assert not os.path.exists(folder(length))


def test_a_failed_trial_is_queued_again_once_at_the_next_start(tmp_path):
  first = study.Study(str(tmp_path), SPACE, GRID)
  _do(first, error=optuna.TrialPruned())
  _do(first, error=study.FailedError('no disk'))
  assert _states(first) == ['pruned', 'failed', 'waiting']
  _do(first)
  assert _do(first) is None
  third = study.Study(str(tmp_path), SPACE, GRID)
  fourth = study.Study(str(tmp_path), SPACE, GRID)
  with contextlib.suppress(ValueError):  # The trial that is done has no folder here.
    third.retry()
  fourth.retry()
  assert _do(third)[0] == 1
  assert _states(fourth)[1] == 'done'


def test_two_processes_do_not_take_a_trial_at_the_same_time(tmp_path, monkeypatch):
  monkeypatch.setattr(study, '_BUSY', 0.1)
  first = study.Study(str(tmp_path), SPACE, GRID)
  second = study.Study(str(tmp_path), SPACE, GRID)
  (trial_id, *_) = [trial._trial_id for trial in second._trials()]
  refused = []

  # After the first process has read that the trial waits, and before it takes the trial.
  @sqlalchemy.event.listens_for(first._storage.engine, 'before_cursor_execute')
  def _before(connection, cursor, statement, *unused):
    if statement.startswith('UPDATE trials') and not refused:
      refused.append(True)
      with pytest.raises(optuna.exceptions.StorageInternalError):  # It is locked.
        second._storage.set_trial_state_values(trial_id, optuna.trial.TrialState.RUNNING)

  assert _do(first) == (0, 0.1)
  assert refused


def test_a_stopped_trial_goes_on_first_with_its_values_and_its_rungs(tmp_path):
  trials = study.Study(str(tmp_path), DRAWN, TPE)

  def stopped(trial):
    attempts.append(trials.begin(trial, 'a').runs[0].server)
    trial.report(0.25, 1)
    trials.release('a')
    raise _Killed

  def resumed(trial):
    attempts.append(trials.begin(trial, 'b').runs[0].server)
    assert not trial.should_prune()
    return 0.5

  attempts = []
  with pytest.raises(_Killed):
    trials.do_next(stopped)
  assert _states(trials) == ['waiting'] * 3
  again = study.Study(str(tmp_path), DRAWN, TPE)
  again.do_next(resumed)
  assert _states(again) == ['done', 'waiting', 'waiting']
  assert attempts[0] == attempts[1]
  assert again._trials()[0].intermediate_values == {1: 0.25}


def test_the_trial_of_a_killed_process_fails_and_that_of_a_lost_one_is_queued_again(tmp_path):
  trials = study.Study(str(tmp_path), DRAWN, TPE)
  _do(trials, 'killed', error=_Killed())
  lost = _do(trials, 'lost', error=_Killed())
  assert _states(trials) == ['running', 'running', 'waiting']
  assert trials.fail('killed', 'it was killed.')
  assert not trials.fail('killed', 'it was killed.')
  trials.retry_lost()
  assert _states(trials) == ['failed', 'running', 'waiting']
  assert trials.views()[0].reason == 'it was killed.'
  with contextlib.closing(sqlite3.connect(tmp_path / study.FILE)) as file, file:
    file.execute("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 day')")
  other = study.Study(str(tmp_path), DRAWN, TPE)
  other.retry_lost()
  assert _states(other) == ['failed', 'waiting', 'waiting']
  assert _do(other)[0] == 2
  assert _do(other) == lost  # The same number, and the same values.
  assert _states(other) == ['failed', 'done', 'done']


def test_a_process_that_ends_before_its_first_heartbeat_loses_its_trial(tmp_path, monkeypatch):
  trials = study.Study(str(tmp_path), DRAWN, TPE)
  trials._study.ask()
  trials.retry_lost()
  assert _states(trials) == ['running', 'waiting', 'waiting']
  monkeypatch.setattr(study, '_GRACE', -1)
  trials.retry_lost()
  assert _states(trials) == ['waiting', 'waiting', 'waiting']


def test_a_grid_whose_start_was_killed_while_it_was_queued_is_queued_whole(tmp_path):
  trials = study.Study(str(tmp_path), SPACE, GRID)
  whole = [view.point for view in trials.views()]
  for number in range(3):
    folder = tmp_path / str(number)
    folder.mkdir()
    shutil.copy(tmp_path / study.FILE, folder)
    with contextlib.closing(sqlite3.connect(folder / study.FILE)) as file, file:
      file.execute('DELETE FROM trials WHERE number >= ?', [number])
    assert [view.point for view in study.Study(str(folder), SPACE, GRID).views()] == whole


@pytest.mark.parametrize(
  'statement, message',
  [
    ('DROP TABLE trials', 'malformed'),
    ("UPDATE trial_user_attributes SET value_json = '{' WHERE key = 'point'", 'Expecting'),
    (
      """UPDATE trial_user_attributes SET value_json = '{"tua": "0.1"}' WHERE key = 'point'""",
      "the settings {'tua': '0.1'}",
    ),
  ],
)
def test_a_damaged_study_is_refused_by_its_name(tmp_path, statement, message):
  study.Study(str(tmp_path), SPACE, GRID)
  path = tmp_path / study.FILE
  with contextlib.closing(sqlite3.connect(path)) as file, file:
    file.execute(statement)
  if statement.startswith('DROP'):  # Of a table that is gone, the rest is of no use.
    path.write_bytes(path.read_bytes()[:5000])
  with pytest.raises(ValueError, match=rf'{path} is damaged .*{message}.*move it away'):
    study.Study(str(tmp_path), SPACE, GRID)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
  'of_plan, of_space, flags',
  [
    ({'search': 'random', 'search_seed': 2}, {}, '--search, --search_seed:'),
    ({'metric': 'validation_f1'}, {}, '--metric:'),
    ({}, {'axes': {'tau': search_space.Range(0.01, 0.9, False, False)}}, '--grid or --range:'),
    ({}, {'given': {'rounds': 10}}, '--rounds:'),
    ({}, {'given': {}}, '--rounds:'),
    ({}, {'given': {'rounds': 9, 'rounds_per_evaluation': 5}}, '--rounds_per_evaluation:'),
    ({}, {'given': {'rounds': 9, 'target': 0.5}}, '--target:'),
    ({'search': 'grid'}, {}, '--search:'),
    ({}, {'seeds': ('0',)}, '--grid=seed:'),
  ],
)
def test_another_search_is_refused_by_its_flags(tmp_path, of_plan, of_space, flags):
  for trials in (2, 3):  # A search of more trials is the same.
    study.Study(str(tmp_path), DRAWN, plan_lib.Plan(search='tpe', trials=trials))
  space = dataclasses.replace(DRAWN, **of_space)
  plan = plan_lib.Plan(**{'search': 'tpe', **of_plan})
  with pytest.raises(ValueError, match=f'differs in {flags} give what it was, or another'):
    study.Study(str(tmp_path), space, plan)


def test_a_search_that_compares_nothing_may_show_another_metric(tmp_path):
  for metric in (None, 'validation_f1'):
    study.Study(str(tmp_path), DRAWN, plan_lib.Plan(search='random', trials=2, metric=metric))


def test_a_folder_has_any_name(tmp_path):
  folder = tmp_path / 'a?b#c%20{d} e'
  study.Study(str(folder), SPACE, GRID)
  assert (folder / study.FILE).exists()
  assert _states(study.Study(str(folder), SPACE, GRID)) == ['waiting'] * 3
