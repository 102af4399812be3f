"""The table: the best first, then what is under way, then what failed."""

import io
import math

import pytest
import rich.console

from scripts.cli import trial_table
from tests.helpers import run_folders

pytest.importorskip('optuna')
from scripts.cli import study


def _run(folder, values, column='validation_accuracy', rounds=10):
  folder.mkdir()
  run_folders.write_config(folder, {'rounds': rounds, 'seed': 0, 'algorithm': 'fed_avg'})
  rows = ''.join(f'{t},{value!r},0.5\n' for t, value in enumerate(values))
  (folder / 'metrics.csv').write_text(f'round,{column},seconds_round\n{rows}')
  return str(folder)


@pytest.fixture(name='rows')
def _rows(tmp_path):
  make = trial_table.Row
  return [
    make('failed', [str(tmp_path / 'none')], ['failed'], ['a [b] | c']),
    make('low', [_run(tmp_path / 'a', [0, 0.25]), _run(tmp_path / 'b', [0, 0.5])], ['done'] * 2),
    make('high', [_run(tmp_path / 'c', [0, 0.75])], ['done']),
    make('diverged', [_run(tmp_path / 'd', [0, math.inf])], ['diverged'], ['not finite']),
    make('one of two', [_run(tmp_path / 'e', [0, 0.99]), 'x'], ['done', 'failed'], ['no disk']),
    make('running', [_run(tmp_path / 'f', [0, 0.9])], ['running']),
    make('pruned', [_run(tmp_path / 'g', [0, 0.95])], ['pruned']),
    make('waiting', ['y'], ['waiting']),
  ]


def test_the_order_and_what_is_said(rows):
  found = trial_table.rank(rows)
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
  rows = [
    trial_table.Row(name, [_run(tmp_path / name, [0, value], metric)], ['done'])
    for name, value in (('a', 0.1), ('b', 0.2))
  ]
  assert trial_table.rank(rows, metric).best == first
  assert trial_table.rank(rows).metric == metric


def test_what_all_is_at_work_has_no_best(rows):
  assert trial_table.rank([row for row in rows if row.state != 'done']).best is None
  assert trial_table.rank(rows[:1]) is None  # Nothing is there to be shown.


def test_in_a_terminal_the_best_and_the_failed_are_marked(rows):
  screen = rich.console.Console(file=io.StringIO(), width=160, force_terminal=True)
  screen.print(trial_table.picture(rows, None, '2 at work'))
  text = screen.file.getvalue()
  lines = text.splitlines()
  assert '2 at work' in text
  assert '\x1b[1;32m' in next(line for line in lines if 'high' in line)
  assert '\x1b[31m' in next(line for line in lines if 'a [b]' in line)
  # Before any round there is nothing to show yet.
  assert trial_table.picture(rows[:1], None, '').row_count in (0, 1)


def test_runs_of_a_grid_that_differ_in_their_seed_are_a_row():
  views = [
    study.View(n, {'tau': tau, 'seed': seed}, 'done', '', [(f'{n}', {})])
    for n, (tau, seed) in enumerate([('1', '0'), ('1', '1'), ('2', '0')])
  ]
  found = trial_table.rows(views, is_grid=True)
  assert [(row.label, row.folders) for row in found] == [('tau=1', ['0', '1']), ('tau=2', ['2'])]
  found = trial_table.rows(views, is_grid=False)
  assert [row.label for row in found] == [f'trial {n}: tau={tau}' for n, tau in enumerate('112')]
