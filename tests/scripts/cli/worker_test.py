"""What the runs of a trial come to, and what a run of a sweep answers."""

import contextlib
import math
import os

import pytest

from scripts.cli import command, plan as plan_lib, resolve, search_space
from tests.helpers import sweep_pool
from tff_adaptive import training

pytest.importorskip('optuna')
from scripts.cli import search, study, worker

SPACE = search_space.Space(
  {'tau': search_space.Range(0.1, 0.9, False, False)}, {'rounds': 9}, seeds=('0', '1')
)
PLAN = plan_lib.Plan(search='tpe', trials=1, first_rung=1)


def _do(folder, results):
  """Does a trial whose runs come to a validation loss each, by seed, or to an answer."""
  trials = study.Study(str(folder), SPACE, PLAN)
  trained = []
  stop = training.Stop()

  def train(run, last_round, unused_stop):
    trained.append((run.what.seed, last_round))
    result = results[run.what.seed]
    if isinstance(result, worker.Answer):
      if result.kind == 'stopped':
        stop.exit_code = 130
      return result
    sweep_pool.write_run(run, last_round or 9, result, 'validation_loss')
    return worker.Answer('done')

  with contextlib.suppress(SystemExit):
    search.do_next('a', trials, PLAN, stop, train)
  return trials, trained


def test_a_trial_is_the_mean_of_its_seeds_reported_at_each_rung(tmp_path, capsys):
  trials, trained = _do(tmp_path, [1.0, 2.0])
  assert trained == [(0, 1), (1, 1), (0, 3), (1, 3), (0, None), (1, None)]
  (trial,) = trials._trials()
  assert trial.intermediate_values == {1: -1.5, 3: -1.5}  # Little of a loss is good.
  assert trial.value == -1.5
  assert 'Trial 1, round 3: validation_loss 1.5\n' in capsys.readouterr().err


@pytest.mark.parametrize(
  'results, state, reason',
  [
    ([worker.Answer('failed', 'no disk'), 1.0], 'failed', 'no disk'),
    ([worker.Answer('diverged', 'a'), worker.Answer('failed', 'b')], 'failed', 'b'),
    ([1.0, worker.Answer('diverged', 'no luck')], 'diverged', 'no luck'),
    ([1.0, math.nan], 'diverged', worker.DIVERGED.format('validation_loss')),
    ([worker.Answer('done'), 1.0], 'failed', plan_lib._WAY_OUT),  # It has no files.
    ([worker.Answer('stopped'), worker.Answer('failed', 'b')], 'waiting', ''),
  ],
)
def test_a_run_that_comes_to_nothing_decides(tmp_path, results, state, reason):
  trials, trained = _do(tmp_path, results)
  (view,) = trials.views()
  assert (view.state, view.reason.rpartition('folder: ')[2]) == (state, reason)
  assert trained == [(0, 1), (1, 1)]


def test_a_trial_that_another_process_has_taken_over_ends_without_a_result(tmp_path, capsys):
  trials = study.Study(str(tmp_path), SPACE, PLAN)

  def train(run, last_round, unused_stop):
    trials.fail('a', 'taken over')  # As Optuna does when heartbeats are missing.
    return worker.Answer('done')

  search.do_next('a', trials, PLAN, training.Stop(), train)
  assert 'Another process has taken over' in capsys.readouterr().err
  assert [view.state for view in trials.views()] == ['failed']


class _Outcome:
  result = None
  is_complete = False


def _settings(folder, rounds=3):
  return resolve.resolve(task='digits', rounds=rounds, output_dir=str(folder))


@pytest.mark.parametrize(
  'error, answer',
  [
    (command.DivergedError('no\nluck'), worker.Answer('diverged', 'no luck')),
    (command.FailureError('no disk'), worker.Answer('failed', 'no disk')),
    (ValueError('bad data'), worker.Answer('failed', 'bad data')),
    (KeyError('a'), worker.Answer('failed', "KeyError: 'a'")),
    (130, worker.Answer('stopped')),
    (0, worker.Answer('done')),
  ],
)
def test_an_error_or_an_exit_code_is_an_answer(monkeypatch, tmp_path, error, answer):
  def run(settings, last_round, stop):
    assert (settings.training.rounds, last_round) == (7, 3)
    if isinstance(error, int):
      return worker.run_lib.Outcome(_Outcome, error)
    raise error

  stop = training.Stop()
  monkeypatch.setattr(worker.run_lib, 'run', run)
  assert worker.train(_settings(tmp_path / 'a', 7), 3, stop) == answer
  assert (stop.requested, stop.exit_code) == ((True, 130) if error == 130 else (False, 0))


def test_the_output_of_a_run_goes_to_its_log_also_from_native_code(monkeypatch, tmp_path, capfd):
  def run(settings, last_round, stop):
    os.write(1, b'from TensorFlow\n')
    os.write(2, f'round {last_round} of {settings.training.rounds}\n'.encode())
    return worker.run_lib.Outcome(_Outcome, 0)

  monkeypatch.setattr(worker.run_lib, 'run', run)
  assert worker.train(_settings(tmp_path / 'a'), 2, training.Stop()) == worker.Answer('done')
  assert (tmp_path / 'logs' / 'a.log').read_text() == 'from TensorFlow\nround 2 of 3\n'
  os.write(2, b'after it\n')
  assert capfd.readouterr().err == f'{tmp_path}/a to round 2\nafter it\n'


def test_a_complete_run_and_one_after_a_signal_are_not_begun(tmp_path, monkeypatch, capsys):
  run = _settings(tmp_path / 'run')
  stop = training.Stop()
  monkeypatch.setattr(worker.run_lib, 'run', None)
  sweep_pool.write_run(run, 3, 0.5)
  assert worker.train(run, None, stop) == worker.Answer('done')
  assert capsys.readouterr().err == f'{run.output.output_dir}: complete already\n'
  stop.request()
  assert worker.train(run, None, stop) == worker.Answer('stopped')
