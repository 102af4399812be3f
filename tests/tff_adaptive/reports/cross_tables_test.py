"""Cross tables: cells, what is bold, what stands beside, what is chosen by what."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import cross_tables, scores
from tff_adaptive_tasks import catalog

TEST = scores.TEST
SO = (342_477, 135_818_730)
WORDS = catalog.TASKS['stackoverflow_nwp'].metric
ALGORITHMS = dict(
  zip(cross_tables.OPTIMIZERS, ('fed_adagrad', 'fed_adam', 'fed_yogi', 'fed_avgm', 'fed_avg'))
)


def runs_of_table_1(folder, task, data, column='validation_accuracy'):
  entry = cross_tables.TASKS[task]
  ends = [
    (figure / entry.factor, {'algorithm': algorithm})
    for algorithm, figure in zip(ALGORITHMS.values(), entry.figures)
  ]
  start = 0.9 if entry.factor == 1000 else 0.01
  data = dict(zip(('clients', 'examples'), data))
  return run_folders.each(folder / task, ends, column, start=start, task=task, data=data)


def test_the_papers_figures_stand_beside_on_the_benchmarks_data(tmp_path):
  runs = [
    *runs_of_table_1(tmp_path, 'shakespeare', (715, 37_784)),
    *runs_of_table_1(tmp_path, 'emnist_cr', (300, 9_000)),
    *runs_of_table_1(tmp_path, 'cifar10', (500, 5_500)),  # A part of each client's examples.
    *runs_of_table_1(tmp_path, 'emnist_ae', (3400, 671_585), 'validation_mse'),
    *runs_of_table_1(tmp_path, 'stackoverflow_lr', SO, 'validation_recall_at_5'),
    *runs_of_table_1(tmp_path, 'stackoverflow_nwp', SO, f'validation_{WORDS}'),
    run_folders.make(tmp_path / 'own', [0.1, 0.5], task='/s/own.py:load'),
    *runs_of_table_1(tmp_path, 'cifar100', (500, 50_000)),
  ]
  (table,) = cross_tables.tasks(runs).tables
  assert table.heading == ['', *cross_tables.OPTIMIZERS]
  assert table.rows == [
    ['Shakespeare', '57.5', '57.0', '57.2', '57.3', '56.9'],
    ['published', '57.5', '57.0', '57.2', '57.3', '56.9'],
    ['EMNIST CR', '85.1', '85.6', '85.5', '85.2', '84.9'],
    ['CIFAR-10', '72.1', '77.4', '78.0', '77.4', '72.8'],
    ['EMNIST AE (mse x 1000)', '4.20', '1.01', '0.98', '1.65', '6.47'],
    ['published', '4.20', '1.01', '0.98', '1.65', '6.47'],
    ['SO LR (recall at 5)', '67.1', '65.8', '65.9', '36.9', '30.0'],
    ['published', '67.1', '65.8', '65.9', '36.9', '30.0'],
    [f'SO NWP ({WORDS.replace("_", " ")})', '23.8', '25.2', '25.2', '23.8', '19.5'],
    ['published', '23.8', '25.2', '25.2', '23.8', '19.5'],
    ['own.py:load', *[''] * 4, '50.0'],
    ['CIFAR-100', '47.9', '52.5', '52.4', '52.4', '44.7'],
    ['published', '47.9', '52.5', '52.4', '52.4', '44.7'],
  ]
  bold = {(0, 1), (0, 3), (0, 4), (2, 2), (2, 3), (2, 4), (3, 3), (4, 3), (6, 1), (8, 2), (8, 3)}
  assert table.bold == {*bold, (10, 5), (11, 2), (11, 3), (11, 4)}
  assert 'mean over the last 1 round' in table.title
  renamed = [dataclasses.replace(run, renamed={'FedYogi': 'Yogi'}) for run in runs[:5]]
  (table,) = cross_tables.tasks(renamed).tables
  assert (table.heading[3], table.rows[1][3]) == ('Yogi', '57.2')
  with pytest.raises(ValueError, match='a cell has runs of different tasks or task files: add'):
    cross_tables.build([runs[0], runs[5]], ['algorithm'], 'seed')


def of_participation(folder, settings_of_runs, value=0.5, test=0.5, **common):
  """Runs with these settings each, of a task with ten clients."""
  ends = [(value, {'test': {'test_accuracy': test}, **settings}) for settings in settings_of_runs]
  usual = {'task': '/s/t.py:load', 'task_option': [], 'clients_per_round': 1}
  return run_folders.each(folder, ends, **{**usual, 'data': {'clients': 10}, **common})


def by_participation(runs):
  """The table of the paper on AdaBest."""
  rows = ['participation', 'task', 'task_option']
  return cross_tables.build(runs, rows, 'algorithm', TEST).tables[0]


def test_the_table_of_participation_is_of_test_data(tmp_path):
  runs = []
  for rate, value in ((0.1, 0.9), (0.2, 0.8)):  # On test data the other rate would win.
    for algorithm, better in (('fed_avg', 0.0), ('ada_best', 0.01)):
      settings = [
        {'clients_per_round': 10, 'buffer_size': n, 'task_option': [alpha, 'validation=test']}
        for n, alpha in itertools.product((None, 1), ('alpha=inf', 'alpha=10', 'alpha=3'))
      ]
      common = {'algorithm': algorithm, 'client_learning_rate': rate}
      folder = tmp_path / f'{rate}_{algorithm}'
      runs += of_participation(folder, settings, value, 0.5 + rate + better, **common)
  table = by_participation(runs)
  assert table.heading == ['participation', 'task', 'task option', 'FedAvg', 'AdaBest']
  assert table.rows == [
    [share, 't.py:load', f'alpha={alpha}, validation=test', '60.00', '61.00']
    for share, alpha in itertools.product(('10 %', '100 %'), ('3', '10', 'inf'))
  ]
  assert table.bold == {(row, 4) for row in range(6)}
  assert table.title == 'Test accuracy, %, after the last round'
  assert table.note.startswith('Best of several settings by validation: client_learning_rate=0.1. ')
  assert 'test accuracy is of theta-bar' in table.note


def test_runs_that_diverged_are_counted(tmp_path):
  names = ['fed_avg'] * 2 + ['scaffold_m'] * 3
  settings = [{'algorithm': name, 'seed': seed} for seed, name in enumerate(names)]
  runs = of_participation(
    tmp_path, settings, column='validation_loss', start=1.0, participation=0.1
  )
  runs[2].rows[-1]['validation_loss'] = 1000.0
  table = by_participation(runs)
  assert table.rows[0] == ['10 %', 't.py:load', '', '50.00 ± 0.00', 'diverged (1 of 3)']
  assert table.bold == {(0, 3)}
  assert 'theta-bar' not in table.note


def test_corrections_by_server_optimizers(tmp_path):
  values = {
    ('fed_avg', 'sgd'): 0.5,
    ('fed_yogi', 'yogi'): 0.8,
    ('scaffold', 'sgd'): 0.75,
    ('scaffold', 'yogi'): 0.85,
    ('ada_best', 'sgd'): math.nan,
  }
  ends = [
    (value + seed / 100, {'algorithm': algorithm, 'server_optimizer': server, 'seed': seed})
    for ((algorithm, server), value), seed in itertools.product(values.items(), (0, 2))
  ]
  report = cross_tables.build(run_folders.each(tmp_path, ends), ['correction'], 'server_optimizer')
  (table,) = report.tables
  assert table.heading == ['correction', 'SGD', 'Yogi']
  assert table.rows == [
    ['none', '51.00 ± 1.41', '81.00 ± 1.41'],
    ['SCAFFOLD', '76.00 ± 1.41', '86.00 ± 1.41'],
    ['AdaBest', 'diverged (2 of 2)', ''],
  ]
  assert table.bold == {(0, 2), (1, 2)}  # The best of each row.
  assert report.figure is None
  assert table.title == 'Validation accuracy, %, mean of the last 1 round'
  assert '76.00' in report.data


@pytest.mark.parametrize(
  'build, message',
  [
    (cross_tables.tasks, 'names no task and algorithm'),
    (by_participation, "has no setting 'participation'"),
    (
      lambda runs: cross_tables.build(runs, ['mu'], 'algorithm'),
      "no setting 'mu' .*: .*learning_rate",
    ),
    (lambda runs: cross_tables.build(runs, ['tau'], 'tau'), 'rows and columns are both tau'),
  ],
)
def test_what_a_run_lacks_is_named(tmp_path, build, message):
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2], client_learning_rate=0.1)
  with pytest.raises(ValueError, match=message):
    build([run])


def tau_runs(folder, algorithm='fed_yogi', shift=0.0):
  """Three values of tau, two rates, of which the higher is better but for the largest tau."""
  values = {0.1: (0.4, 0.3), 0.001: (0.5, 0.6), 0.01: (0.7, 0.8)}
  ends = []
  for tau, pair in values.items():
    for rate, value in zip((0.1, 0.3), pair):
      for seed, noise in ((0, -0.005), (1, 0.005)):
        settings = {'tau': tau, 'client_learning_rate': rate, 'seed': seed}
        ends.append((value + shift + noise, settings))
  return run_folders.each(folder / algorithm, ends, algorithm=algorithm)


def test_by_a_number_there_is_a_line_for_each_row(tmp_path):
  both = [*tau_runs(tmp_path), *tau_runs(tmp_path, 'fed_adam', -0.05)]
  both.append(run_folders.make(tmp_path / 'other', [0.1, 0.99], tau=None))
  report = cross_tables.build(both, ['algorithm'], 'tau')
  (table,) = report.tables
  assert table.heading == ['algorithm', '0.001', '0.01', '0.1', 'none']
  assert table.rows == [
    ['FedYogi', '60.00 ± 0.71', '80.00 ± 0.71', '40.00 ± 0.71', ''],
    ['FedAdam', '55.00 ± 0.71', '75.00 ± 0.71', '35.00 ± 0.71', ''],
    ['FedAvg', '', '', '', '99.00'],
  ]
  assert table.bold == {(0, 2), (1, 2), (2, 4)}
  assert 'client_learning_rate=0.1 (FedYogi, 0.1; FedAdam, 0.1)' in table.note
  (axes,) = report.figure.axes
  assert axes.get_xscale() == 'log'
  assert [text.get_text() for text in report.figure.legends[0].get_texts()] == [
    'FedYogi',
    'FedAdam',
  ]
  line, *_ = axes.get_lines()
  np.testing.assert_allclose(line.get_xydata(), [[0.001, 0.6], [0.01, 0.8], [0.1, 0.4]])
  # A value that is 0 has no place on a logarithmic axis; 0.001 to 0.01 are enough for one.
  for tau, scale in ((0.0, 'linear'), (0.005, 'log')):
    for run in (*both[:4], *both[12:16]):
      run.settings['tau'] = tau
    report = cross_tables.build(both, ['algorithm'], 'tau', title='Mine')
    assert (report.figure.axes[0].get_xscale(), report.title) == (scale, 'Mine')
    assert report.tables[0].title.startswith('Mine: validation accuracy, %, mean of the last')


@pytest.mark.parametrize(
  ('column', 'bold'), [('validation_accuracy', {'b'}), ('validation_loss', {'a'}), ('h_norm', ())]
)
def test_no_norm_is_the_best_of_a_row(column, bold):
  cells = {name: scores.Score(np.array([value])) for name, value in (('a', 0.1), ('b', 0.2))}
  assert {*cross_tables._row(['FedDyn'], cells, column).bold} == {*bold}
