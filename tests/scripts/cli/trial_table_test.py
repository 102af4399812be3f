"""The table: the best first, then what is under way, then what failed."""

import io
import math

import pytest
import rich.console

from scripts.cli import trial_table
from tests.helpers import run_folders
from tff_adaptive.reports import scores
from tff_adaptive.runs import run as run_lib

pytest.importorskip('optuna')
from scripts.cli import study

PLAN = study.Plan('grid')


def _run(folder, values, column='validation_accuracy', rounds=10):
  folder.mkdir()
  run_folders.write_config(folder, {'rounds': rounds, 'seed': 0, 'algorithm': 'fed_avg'})
  rows = ''.join(f'{t},{value!r},0.5\n' for t, value in enumerate(values))
  (folder / 'metrics.csv').write_text(f'round,{column},seconds_round\n{rows}')
  return str(folder)


def _row(*trials):
  """A row of trials: a run's folder and a state each, and a reason of what failed."""
  return [
    study.View(n, {}, state, ''.join(reason), [(folder, {})])
    for n, (folder, state, *reason) in enumerate(trials)
  ]


@pytest.fixture(name='rows')
def _rows(tmp_path):
  def run(name, value):
    return _run(tmp_path / name, [0, value])

  return {
    'failed': _row(('none', 'failed', 'a [b] | c')),
    'low': _row((run('a', 0.25), 'done'), (run('b', 0.5), 'done')),
    'high': _row((run('c', 0.75), 'done')),
    'diverged': _row((run('d', math.inf), 'diverged', 'not finite')),
    'one of two': _row((run('e', 0.99), 'done'), ('x', 'failed', 'no disk')),
    'running': _row((run('f', 0.9), 'running')),
    'pruned': _row((run('g', 0.95), 'pruned')),
    'waiting': _row(('y', 'waiting')),
  }


def test_the_order_and_what_is_said(rows):
  found = trial_table.rank(rows, PLAN)
  assert (found.best, found.metric) == ('high', 'validation_accuracy')
  text = found.table.markdown()
  cells = [line[2:-1].split(' | ') for line in text.splitlines()[2:]]
  assert [(row[0], row[-1].strip()) for row in cells] == [
    ('high', 'best'),
    ('low', ''),
    ('running', 'running'),
    ('pruned', 'pruned'),
    ('waiting', 'waiting'),
    ('diverged', 'diverged: not finite'),
    ('one of two', '1 of 2 failed: no disk'),
    ('failed', 'failed: a [b] \\| c'),
  ]
  assert cells[1][3] == '0.3750 ± 0.1768'
  assert '| validation accuracy, mean of last 1 round (1 evaluation) |' in text.splitlines()[0]


@pytest.mark.parametrize('metric, first', [('validation_loss', 'a'), ('validation_score', 'b')])
def test_the_best_by_a_loss_is_the_lowest(tmp_path, metric, first):
  rows = {
    name: _row((_run(tmp_path / name, [0, value], metric), 'done'))
    for name, value in (('a', 0.1), ('b', 0.2))
  }
  assert trial_table.rank(rows, study.Plan('grid', metric=metric)).best == first
  assert trial_table.rank(rows, PLAN).metric == metric


@pytest.mark.parametrize('window, best', [(None, 'b'), (10, 'a')])
def test_the_best_is_so_over_the_window(tmp_path, window, best):
  curves = {'a': [0.0, *[0.9] * 9, 0.1], 'b': [0.0, *[0.5] * 10]}
  rows = {name: _row((_run(tmp_path / name, curves[name]), 'done')) for name in curves}
  found = trial_table.rank(rows, study.Plan('grid', window=window))
  assert found.best == best
  assert f'mean of last {window or 1} round' in found.table.heading[3]


def test_the_best_is_that_of_the_reports(tmp_path):
  """A run whose loss ends at 101 times its first is no good, whatever its accuracy."""
  rows = {}
  for name, loss, accuracy in (('a', 101.0, 0.9), ('b', 0.5, 0.7), ('c', 0.5, 0.8)):
    folder = _run(tmp_path / name, [1.0, loss], 'validation_loss', rounds=1)
    text = f'round,validation_loss,validation_accuracy\n0,1.0,0.1\n1,{loss},{accuracy}\n'
    (tmp_path / name / 'metrics.csv').write_text(text)
    run_folders.write_config(tmp_path / name, {'rounds': 1, 'seed': 0, 'algorithm': name})
    rows[name] = _row((folder, 'done'))
  found = trial_table.rank(rows, study.Plan('grid', metric='validation_accuracy'))
  assert [row[0] for row in found.table.rows] == ['c', 'b', 'a']
  _, (best,) = scores.best_runs(run_lib.find_runs([str(tmp_path)]), 'validation_accuracy')
  assert best.settings['algorithm'] == found.best


def test_what_all_is_at_work_or_not_finite_has_no_best(rows, tmp_path):
  shown_by_another_metric = _row((_run(tmp_path / 'n', [0, math.nan]), 'done'))
  assert trial_table.rank({'done': shown_by_another_metric}, PLAN).best is None
  done = ('low', 'high')
  assert trial_table.rank({n: row for n, row in rows.items() if n not in done}, PLAN).best is None
  assert trial_table.rank({'failed': rows['failed']}, PLAN) is None  # Nothing is there to be shown.


def test_in_a_terminal_the_best_and_the_failed_are_marked(rows):
  screen = rich.console.Console(file=io.StringIO(), width=160, force_terminal=True)
  screen.print(trial_table.picture(rows, PLAN, '2 at work'))
  text = screen.file.getvalue()
  lines = text.splitlines()
  assert '2 at work' in text
  assert '\x1b[1;32m' in next(line for line in lines if 'high' in line)
  assert '\x1b[31m' in next(line for line in lines if 'a [b]' in line)
  # Before any round there is nothing to show yet.
  assert trial_table.picture({'failed': rows['failed']}, PLAN, '').row_count in (0, 1)


def test_runs_of_a_grid_that_differ_in_their_seed_are_a_row():
  views = [
    study.View(n, {'tau': tau, 'seed': seed}, 'done', '', [(f'{n}', {})])
    for n, (tau, seed) in enumerate([('1', '0'), ('1', '1'), ('2', '0')])
  ]
  found = trial_table.rows(views, is_grid=True)
  assert {label: [v.number for v in row] for label, row in found.items()} == {
    'tau=1': [0, 1],
    'tau=2': [2],
  }
  found = trial_table.rows(views, is_grid=False)
  assert [*found] == [f'trial {n}: tau={tau}' for n, tau in enumerate('112')]


def test_the_table_says_how_clients_are_weighed(tmp_path):
  rows = {}
  for name, weighting in (('fed_avg', 'examples'), ('scaffold', 'uniform')):
    rows[name] = _row((_run(tmp_path / name, [0, 0.5], rounds=1), 'done'))
    settings = {'rounds': 1, 'seed': 0, 'algorithm': name, 'client_weighting': weighting}
    run_folders.write_config(tmp_path / name, settings)
  note = trial_table.rank(rows, PLAN).table.note
  assert note == 'client_weighting: examples (FedAvg), uniform (SCAFFOLD).'
