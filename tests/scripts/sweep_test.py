"""scripts/sweep.py: every trial once, by its rules; what failed is a row, bad input is refused."""

import itertools
import os
import shutil
import signal

import pytest

from scripts import sweep
from scripts.cli import flags, plan, resolve, worker
from tests.helpers import sweep_pool

pytest.importorskip('optuna')


def _rate(settings):
  return settings.rates.client_learning_rate


@pytest.fixture(name='sweeping')
def _sweeping(tmp_path, monkeypatch):
  """Returns a function of a command's flags and a result: runs it, gives its code and the pool."""

  def run(arguments, result):
    pool = sweep_pool.Runs(result)
    sweep_pool.install(monkeypatch, pool)
    own_arguments, _, fixed = ' '.join(arguments).partition(' -- ')
    command = ['sweep.py', f'--output_dir={tmp_path}', *own_arguments.split(), '--', *fixed.split()]
    return sweep.main(command), pool

  return run


def _table(text):
  rows = [line.strip('|').split('|') for line in text.splitlines() if line.startswith('|')]
  return [list(map(str.strip, row)) for row in rows]


def test_a_grid_is_done_once_and_what_failed_is_a_row_and_is_tried_again(
  sweeping, capsys, tmp_path
):
  down = {1.0}

  def result(s):
    if _rate(s) in down:
      return worker.Answer('failed', 'the disk\nis | full')
    if _rate(s) > 2:
      return worker.Answer('diverged', 'no finite weights')
    return _rate(s) / 10 - 0.005 + s.what.seed / 100

  def run(values, seeds, result):
    grid = [f'--grid=client_learning_rate={values}', f'--grid=seed={seeds}', '--target=0.2']
    code, pool = sweeping([*grid, '--', '--rounds=2'], result)
    return code, [name for name, _ in pool.ran()]

  def folders(*rates, seeds=(0, 1)):
    pairs = itertools.product(rates, seeds)
    return [f'client_learning_rate={rate},seed={seed}' for rate, seed in pairs]

  assert run('0.5,9,1,2', '0,1', result) == (1, folders('0.5', '9', '1', '2'))
  captured = capsys.readouterr()
  rows = _table(captured.out)[2:]
  assert [row[0].split('=')[1] for row in rows] == ['2', '0.5', '9', '1']
  assert rows[0][3] == '0.2000 ± 0.0071'
  assert rows[0][-1] == 'best'
  assert '1 (reached by 1 of 2 seeds)' in rows[0]
  assert rows[2][-1] == 'diverged: no finite weights'
  assert 'failed: the disk is \\| full' in captured.out
  assert f'in {tmp_path}/client_learning_rate=2,seed=0\n' in captured.out
  down.clear()
  assert run('0.5,9,1,2', '0,1', result) == (0, folders('1'))  # What diverged is a result.
  assert 'failed' not in capsys.readouterr().out
  assert run('0.5,9,1,2', '0,1', None) == (0, [])  # Nothing is left to do.
  assert (tmp_path / 'sweep.md').read_text() in capsys.readouterr().out
  # A grid may grow, and takes complete runs over.
  assert run('0.5,2', '0,1,2', result) == (0, folders('0.5', '2', seeds=[2]))
  pruned = plan.Plan(prune='asha')  # A ninth of the rounds, at an evaluation.
  runs = [resolve.resolve(rounds=100, rounds_per_evaluation=every) for every in (5, 10)]
  assert [str(sweep._first_rung(pruned, run)) for run in runs] == ['15', '20']


@pytest.mark.exhaustive
def test_a_run_whose_folder_was_deleted_is_done_again(sweeping, tmp_path):
  command = ['--search=random', '--trials=2', '--grid=seed=0,1', '--range=tau=0.001,0.1']
  command += ['--', '--rounds=2']
  _, before = sweeping(command, lambda s: 0.5)
  shutil.rmtree(tmp_path / 'trial=0,seed=1')
  code, pool = sweeping(command, lambda s: 0.5)
  assert (code, pool.ran()) == (0, [('trial=0,seed=1', None)])
  assert pool.settings[0] == before.settings[1]
  assert sweeping(command, None)[1].ran() == []
  # One that fails now is a failure, and is tried again; one that diverges is not.
  shutil.rmtree(tmp_path / 'trial=0,seed=1')
  os.makedirs(tmp_path / 'trial=0,seed=1')
  for answer, expected in (('failed', 1), ('diverged', 0)):
    assert sweeping(command, lambda s, a=answer: worker.Answer(a, 'by the test'))[0] == expected
  assert sweeping(command, None)[1].ran() == []


def test_a_metric_is_one_that_all_runs_have(sweeping, capsys, tmp_path):
  fixed = ['--', '--rounds=2', '--clients_per_round=2']
  assert sweeping(['--grid=task=digits,least_squares', *fixed], None)[0] == 2
  error = capsys.readouterr().err
  assert '(digits by accuracy, least_squares by loss): give one that all have' in error
  assert os.listdir(tmp_path) == []
  command = ['--grid=seed=0,1', '--metric=validation_f1', '--', '--rounds=2']
  code, pool = sweeping(command, lambda s: 0.5)
  assert (code, len(pool.settings)) == (2, 1)
  assert "no values of 'validation_f1'" in capsys.readouterr().err
  assert sweeping(['--grid=task=digits,digits_skewed', *fixed], lambda s: 0.5)[0] == 0


def test_random_points_depend_on_the_seed_and_the_trial_alone(sweeping, tmp_path, capsys):
  def result(s):
    drawn.append((s.output.output_dir, _rate(s), s.training.clients_per_round))
    return _rate(s)

  command = ['--search=random', '--range=client_learning_rate=0.01,1,log']
  command += ['--range=clients_per_round=2,9']
  drawn = []
  assert sweeping([*command, '--trials=2', '--', '--rounds=2'], result)[0] == 0
  code, pool = sweeping([*command, '--trials=5', '--', '--rounds=2'], result)  # Goes on.
  assert (code, len(pool.settings)) == (0, 3)
  at_once = drawn
  drawn = []
  assert len({rate for _, rate, _ in at_once}) == 5
  assert all(0.01 <= rate <= 1 and 2 <= clients <= 9 for _, rate, clients in at_once)
  other = [f'--output_dir={tmp_path}/b', *command, '--trials=5', '--jobs=3']
  assert sweeping([*other, '--', '--rounds=2'], result)[0] == 0
  assert [row[1:] for row in drawn] == [row[1:] for row in at_once]
  best = max(rate for _, rate, _ in at_once)
  assert f'client_learning_rate={best:.6g}' in _table(capsys.readouterr().out)[-5][0]


@pytest.mark.exhaustive
def test_tpe_draws_near_to_what_was_good(sweeping):
  def result(s):
    drawn.append(_rate(s))
    return 1 - abs(_rate(s) - 0.7)

  drawn = []
  command = ['--search=tpe', '--trials=30', '--range=client_learning_rate=0,1', '--', '--rounds=2']
  assert sweeping(command, result)[0] == 0
  distance = [abs(x - 0.7) for x in drawn]
  assert sum(distance[-10:]) < 0.5 * sum(distance[:10])


def test_of_each_rung_the_best_go_on_with_their_runs(sweeping, capsys):
  """Against successive halving by hand: a third of those that came so far, at least the best."""
  values = [0.1, 0.5, 0.3, 0.9, 0.2, 0.6, 0.95, 0.4, 0.7]
  rates = ','.join(map(str, values))
  command = [f'--grid=client_learning_rate={rates}', '--prune=asha', '--', '--rounds=90']
  code, pool = sweeping([*command, '--rounds_per_evaluation=1'], _rate)
  assert code == 0
  expected = []
  rungs = {10: [], 30: []}  # From a ninth of the rounds on.
  for value in values:
    for rung, before in rungs.items():
      expected.append((f'client_learning_rate={value}', rung))
      before.append(value)
      if value < sorted(before)[-max(len(before) // 3, 1)]:
        break
    else:
      expected.append((f'client_learning_rate={value}', None))
  assert pool.ran() == expected
  rows = _table(capsys.readouterr().out)[2:]
  assert rows[0][0] == 'client_learning_rate=0.95'
  assert rows[0][2] == '90'
  assert {row[-1] for row in rows if row[2] != '90'} == {'pruned'}


def test_a_signal_ends_the_sweep_with_its_code_and_the_trial_goes_on_later(sweeping, capsys):
  command = ['--search=random', '--trials=2', '--range=tau=0.001,0.1', '--', '--rounds=2']
  code, first = sweeping(command, lambda s: signal.SIGTERM)
  assert code == 128 + signal.SIGTERM
  error = capsys.readouterr().err
  assert 'Trial 1 of 2:\n' in error
  assert 'the same command resumes' in error
  assert len(first.settings) == 1
  code, second = sweeping(command, lambda s: 0.5)
  assert code == 0
  assert second.settings[0] == first.settings[0]
  assert second.ran() == [('trial=0', None), ('trial=1', None)]


@pytest.mark.parametrize(
  'arguments, message',
  [
    ('--grid=tau=0.1,0', '--tau must be'),
    ('--output_dir= --grid=tau=1', '--output_dir is missing'),
    ('', 'at least once'),
    ('--grid=tau=1 more', "unexpected argument 'more'"),
    ('--grid=tau=1 --rounds=3', "(Flags of train.py go after ' -- '.)"),
    ('--grid=tau=1 -- --help', "--help belongs before ' -- '"),
    ('--grid=seed=0,1 -- --seed=4', '--seed is varied and after'),
    ('--grid=xla=true -- --noxla', '--xla is varied and after'),
    ('--grid=seed=0 -- --output_dir=y', "belongs before ' -- '"),
    ('--grid=tau=1 -- --dry_run', "--dry_run belongs before ' -- '"),
    ('--grid=tau=1 --search=tpe', '--trials=NUMBER'),
    ('--grid=tau=1 --range=mu=0,1', '--range needs --search=random or tpe: give that'),
    ('--grid=tau=1 --prune=asha --reduction_factor=1', '--reduction_factor must be at least 2'),
    ('--grid=tau=1 --prune=asha --first_rung=3', 'multiple of --rounds_per_evaluation=10'),
    ('--grid=tau=1 --prune=asha --first_rung=150', 'and less than --rounds=150'),
    ('--grid=dropout_rate=0 --prune=asha -- --virtual_seconds_per_evaluation=9', 'without'),
    ('--grid=tau=1 --metric=test_accuracy', 'never selected on test data'),
  ],
)
def test_a_bad_sweep_is_refused_before_anything_runs(
  arguments, message, capsys, monkeypatch, tmp_path
):
  monkeypatch.chdir(tmp_path)
  assert sweep.main(['sweep.py', '--output_dir=x', *arguments.split()]) == 2
  error = capsys.readouterr().err
  assert message in error
  assert error.count('\n') == 1
  assert os.listdir() == []


@pytest.mark.parametrize(
  'command, count',
  [
    (['--grid=tau=0.1,0.2', '--', '--task_option=alpha=1'], 2),
    (['--search=random', '--trials=12', '--range=tau=0.001,0.1,log', '--'], 12),
    (['--search=tpe', '--trials=12', '--range=tau=0.001,0.1,log', '--'], 10),
  ],
)
@pytest.mark.sample(1)
def test_a_dry_run_says_what_would_be_done(sweeping, capsys, tmp_path, command, count):
  command = [*command, '--rounds=2']
  assert sweeping(['--dry_run', *command], None)[0] == 0
  assert os.listdir(tmp_path) == []
  lines = capsys.readouterr().out.splitlines()
  _, pool = sweeping(command, lambda s: 0.5)
  assert len(lines) == count
  done = [flags.command_line(run.given) for run in pool.settings[:count]]
  assert lines == [' '.join(['train.py', *line]) for line in done]
