"""The table: the best first, then what is under way, then what failed."""

import math

import pytest

from scripts.cli import plan, trial_table
from tests.helpers import run_folders
from tff_adaptive.reports import scores
from tff_adaptive.runs import run as run_lib

pytest.importorskip('optuna')
from scripts.cli import study

PLAN = plan.Plan()


def _row(*trials):
  """A row of trials: a run's folder and a state each, and a reason of what failed."""
  return [
    study.View(n, {}, state, ''.join(reason), [(folder, {})])
    for n, (folder, state, *reason) in enumerate(trials)
  ]


@pytest.fixture(name='rows')
def _rows(tmp_path):
  def run(name, value, algorithm='fed_avg', client_weighting='examples'):
    settings = {'algorithm': algorithm, 'client_weighting': client_weighting}
    return run_folders.make(tmp_path / name, [0, value], **settings).folder

  return {
    'failed': _row(('none', 'failed', 'a [b] | c'), ('none', 'failed', 'd')),
    'low': _row((run('a', 0.25), 'done'), (run('b', 0.5), 'done')),
    'high': _row((run('c', 0.75, 'scaffold', 'uniform'), 'done')),
    'diverged': _row((run('d', math.inf), 'diverged', 'not finite'), ('z', 'pruned')),
    'one of two': _row((run('e', 0.99), 'done'), ('x', 'failed', 'no disk')),
    'running': _row((run('f', 0.9), 'running')),
    'pruned': _row((run('g', 0.95), 'pruned')),
    'waiting': _row(('y', 'waiting')),
  }


def test_the_order_and_what_is_said(rows):
  table, best = trial_table.rank(rows, PLAN)
  assert best == 'high'
  text = table.markdown()
  cells = [line[2:-1].split(' | ') for line in text.splitlines()[2:-2]]  # Before the note.
  assert [(row[0], row[-1].strip()) for row in cells] == [
    ('high', 'best'),
    ('low', ''),
    ('running', 'running'),
    ('pruned', 'pruned'),
    ('waiting', 'waiting'),
    ('diverged', '1 of 2 diverged: not finite'),
    ('one of two', '1 of 2 failed: no disk'),
    ('failed', r'failed: a \[b\] \| c; d'),
  ]
  assert cells[1][3] == '0.3750 ± 0.1768'
  assert '| validation accuracy, mean of last 1 round (1 evaluation) |' in text.splitlines()[0]
  assert table.note == 'client_weighting: examples (FedAvg), uniform (SCAFFOLD).'


@pytest.mark.parametrize('window, best', [(None, 'b'), (10, 'a')])
def test_the_best_is_so_over_the_window(tmp_path, window, best):
  curves = {'a': [0.0, *[0.9] * 9, 0.1], 'b': [0.0, *[0.5] * 10]}
  rows = {n: _row((run_folders.make(tmp_path / n, c).folder, 'done')) for n, c in curves.items()}
  table, ranking = trial_table.rank(rows, plan.Plan(window=window))
  assert ranking == best
  assert f'mean of last {window or 1} round' in table.heading[3]


def test_the_best_is_that_of_the_reports_by_any_metric(tmp_path):
  """A run whose loss ends at 101 times its first is no good, whatever its accuracy."""
  rows = {}
  for name, loss, accuracy in (('a', 101.0, 0.9), ('b', 0.4, 0.7), ('c', 0.5, 0.8)):
    run = run_folders.make(tmp_path / name, [1.0, loss], algorithm=name)
    text = f'round,validation_loss,validation_accuracy\n0,1.0,0.1\n1,{loss},{accuracy}\n'
    (tmp_path / name / 'metrics.csv').write_text(text)
    rows[name] = _row((run.folder, 'done'))
  runs = run_lib.find_runs([str(tmp_path)])
  for metric, order in (('validation_accuracy', 'cba'), ('validation_loss', 'bca')):
    table, ranking = trial_table.rank(rows, plan.Plan(metric=metric))
    assert [row[0] for row in table.rows] == [*order]
    _, (best,) = scores.best_runs(runs, metric)
    assert best.settings['algorithm'] == ranking


def test_what_all_is_at_work_or_not_finite_has_no_best(rows, tmp_path):
  shown_by_another_metric = _row((run_folders.make(tmp_path / 'n', [0, math.nan]).folder, 'done'))
  assert trial_table.rank({'done': shown_by_another_metric}, PLAN)[1] is None
  done = ('low', 'high')
  assert trial_table.rank({n: row for n, row in rows.items() if n not in done}, PLAN)[1] is None
  assert trial_table.rank({'failed': rows['failed']}, PLAN) is None  # Nothing is there to be shown.


def test_runs_of_a_grid_that_differ_in_their_seed_are_a_row():
  views = [
    study.View(n, {'tau': tau, 'mu': '3', 'seed': seed}, 'done', '', [(f'{n}', {})])
    for n, (tau, seed) in enumerate([('1', '0'), ('1', '1'), ('2', '0')])
  ]
  rows = trial_table.rows(views, is_grid=True)
  assert {*rows} == {'tau=1, mu=3', 'tau=2, mu=3'}
  assert [view.number for view in rows['tau=1, mu=3']] == [0, 1]
  assert [view.number for view in rows['tau=2, mu=3']] == [2]
  rows = trial_table.rows(views, is_grid=False)
  assert [*rows] == [f'trial {n}: tau={tau}, mu=3' for n, tau in enumerate('112')]
