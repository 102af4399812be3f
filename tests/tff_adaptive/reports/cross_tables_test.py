"""Cross tables: cells, what is bold, what stands beside, what is chosen by what."""

import math

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import cross_tables, scores

ALGORITHMS = dict(
  zip(cross_tables.OPTIMIZERS, ('fed_adagrad', 'fed_adam', 'fed_yogi', 'fed_avgm', 'fed_avg'))
)
# What is bold in the paper's Table 1.
BOLD = {
  'cifar10': {'FedYogi'},
  'cifar100': {'FedAdam', 'FedYogi', 'FedAvgM'},
  'emnist_cr': {'FedAdam', 'FedYogi', 'FedAvgM'},
  'shakespeare': {'FedAdagrad', 'FedYogi', 'FedAvgM'},
  'stackoverflow_nwp': {'FedAdam', 'FedYogi'},
  'stackoverflow_lr': {'FedAdagrad'},
  'emnist_ae': {'FedYogi'},
}


def test_bold_is_what_the_paper_has_bold():
  for task, entry in cross_tables.TASKS.items():
    found = {
      name: scores.Score([figure / entry.factor])
      for name, figure in zip(cross_tables.OPTIMIZERS, entry.figures)
    }
    assert scores.is_best(found, f'validation_{entry.metric}', within=0.5) == BOLD[task], task


def runs_of_table_1(folder, task, clients, column='validation_accuracy'):
  entry = cross_tables.TASKS[task]
  return [
    run_folders.make(
      folder / f'{task}_{name}',
      [0.9 if entry.factor == 1000 else 0.01, figure / entry.factor],
      column,
      algorithm=algorithm,
      task=task,
      data={'clients': clients},
    )
    for (name, algorithm), figure in zip(ALGORITHMS.items(), entry.figures)
  ]


def test_the_papers_figures_stand_beside_on_the_benchmarks_data(tmp_path):
  runs = [
    *runs_of_table_1(tmp_path, 'shakespeare', 715),
    *runs_of_table_1(tmp_path, 'emnist_cr', 300),
    *runs_of_table_1(tmp_path, 'emnist_ae', 3400, 'validation_mse'),
  ]
  (table,) = cross_tables.tasks(runs).tables
  assert table.heading == ['', *cross_tables.OPTIMIZERS]
  assert table.rows == [
    ['Shakespeare', '57.5', '57.0', '57.2', '57.3', '56.9'],
    ['published', '57.5', '57.0', '57.2', '57.3', '56.9'],
    ['EMNIST CR', '85.1', '85.6', '85.5', '85.2', '84.9'],
    ['EMNIST AE (mse x 1000)', '4.20', '1.01', '0.98', '1.65', '6.47'],
    ['published', '4.20', '1.01', '0.98', '1.65', '6.47'],
  ]
  assert table.bold == {(0, 1), (0, 3), (0, 4), (2, 2), (2, 3), (2, 4), (3, 3)}
  assert 'mean over the last 1 round' in table.title


def test_of_several_settings_the_best_on_validation_counts(tmp_path):
  runs = [
    run_folders.make(
      tmp_path / f'{rate}_{seed}',
      [0.1, value + seed / 100],
      task='digits',
      client_learning_rate=rate,
      seed=seed,
    )
    for rate, value in ((1.0, math.nan), (0.1, 0.5), (0.3, 0.7))
    for seed in (0, 2)
  ]
  (table,) = cross_tables.tasks(runs).tables
  assert table.rows == [['digits', '71.0 ± 1.4']]
  assert table.note == 'Best of several settings by validation: client_learning_rate=0.3.'


def test_the_table_of_participation_is_of_test_data(tmp_path):
  runs = [
    run_folders.make(
      tmp_path / f'{clients}_{alpha}_{algorithm}_{rate}',
      [0.1, 0.9 if rate == 0.1 else 0.8],
      task='mnist_skewed',
      task_option=[f'alpha={alpha}', 'validation=test'],
      algorithm=algorithm,
      clients_per_round=clients,
      client_learning_rate=rate,
      data={'clients': 100},
      # On test data the other rate would win.
      test={'test_accuracy': 0.5 + rate + (algorithm == 'ada_best') / 100},
    )
    for clients in (1, 100)
    for alpha in ('0.03', 'inf')
    for algorithm in ('ada_best', 'fed_avg')
    for rate in (0.1, 0.2)
  ]
  (table,) = cross_tables.participation(runs).tables
  assert table.heading == ['participation', 'task', 'setting', 'FedAvg', 'AdaBest']
  assert table.rows == [
    ['1 %', 'mnist_skewed', 'alpha = 0.03', '60.00', '61.00'],
    ['1 %', 'mnist_skewed', 'IID', '60.00', '61.00'],
    ['100 %', 'mnist_skewed', 'alpha = 0.03', '60.00', '61.00'],
    ['100 %', 'mnist_skewed', 'IID', '60.00', '61.00'],
  ]
  assert table.bold == {(row, 4) for row in range(4)}


def test_the_table_of_participation_counts_runs_that_diverged(tmp_path):
  runs = [
    run_folders.make(
      tmp_path / f'{algorithm}_{seed}',
      [1.0, last],
      column='validation_loss',
      algorithm=algorithm,
      task='mnist_skewed',
      seed=seed,
      clients_per_round=1,
      data={'clients': 10},
      test={'test_accuracy': 0.5},
    )
    for algorithm, seed, last in (
      ('fed_avg', 0, 0.5),
      ('fed_avg', 1, 0.5),
      ('scaffold_m', 0, 2.0),
      ('scaffold_m', 1, 0.5),
      ('scaffold_m', 2, 0.5),
    )
  ]
  runs[3].rows[0]['non_finite_clients'] = 3  # It recovered.
  (table,) = cross_tables.participation(runs).tables
  assert table.rows[0][3:] == ['50.00 ± 0.00', '50.00 ± 0.00 (1 of 3 diverged)']
  assert table.bold == {(0, 3), (0, 4)}
  runs[2].rows[-1]['validation_loss'] = 1000.0
  (table,) = cross_tables.participation(runs).tables
  assert table.rows[0][3:] == ['50.00 ± 0.00', 'diverged (2 of 3)']
  assert table.bold == {(0, 3)}


def _of_own_task(folder, alpha, algorithm='fed_avg', rate=0.1, value=0.5):
  return run_folders.make(
    folder / f'{alpha}_{algorithm}_{rate}',
    [0.1, value],
    task='t.py:load',
    task_option=[f'alpha={alpha}'] if alpha else [],
    algorithm=algorithm,
    clients_per_round=1,
    client_learning_rate=rate,
    data={'clients': 10},
    test={'test_accuracy': 0.5},
  )


def test_rows_of_participation_are_sorted_by_numbers_and_an_option_may_be_a_text(tmp_path):
  runs = [_of_own_task(tmp_path, alpha) for alpha in ('10', '3', 'auto', '')]
  (table,) = cross_tables.participation(runs).tables
  assert [row[2] for row in table.rows] == ['', 'alpha = 3', 'alpha = 10', 'alpha = auto']


def test_runs_without_a_task_are_refused(tmp_path):
  with pytest.raises(ValueError, match='names no task and algorithm'):
    cross_tables.tasks([run_folders.make(tmp_path / 'a', [0.1, 0.2])])


def test_corrections_by_server_optimizers(tmp_path):
  values = {
    ('fed_avg', 'sgd'): 0.5,
    ('fed_yogi', 'yogi'): 0.8,
    ('scaffold', 'sgd'): 0.75,
    ('scaffold', 'yogi'): 0.25,
    ('ada_best', 'sgd'): math.nan,
  }
  runs = [
    run_folders.make(
      tmp_path / f'{algorithm}_{server}_{seed}',
      [0.1, value + seed / 100],
      algorithm=algorithm,
      server_optimizer=server,
      seed=seed,
    )
    for (algorithm, server), value in values.items()
    for seed in (0, 2)
  ]
  made = cross_tables.build(runs, 'correction', 'server_optimizer')
  (table,) = made.tables
  assert table.heading == ['correction', 'SGD', 'Yogi']
  assert table.rows == [
    ['none', '51.00 ± 1.41', '81.00 ± 1.41'],
    ['SCAFFOLD', '76.00 ± 1.41', '26.00 ± 1.41'],
    ['AdaBest', 'diverged', ''],
  ]
  assert table.bold == {(1, 1), (0, 2)}  # The best of each column.
  assert table.title == 'Validation accuracy, mean over the last 1 round, %'
  assert '76.00' in made.data


def test_test_data_are_shown_and_choose_nothing(tmp_path):
  runs = [
    run_folders.make(
      tmp_path / f'{schedule}_{rate}',
      [0.1, 0.9 if rate == 0.1 else 0.8],
      client_schedule=schedule,
      task_option=['alpha=0.3', 'validation=clients'],
      client_learning_rate=rate,
      test={'test_accuracy': 0.5 + rate},
    )
    for schedule in ('constant', 'inv_sqrt')
    for rate in (0.1, 0.2)
  ]
  (table,) = cross_tables.build(runs, 'client_schedule', 'task_option', 'test_accuracy').tables
  assert table.heading == ['client schedule', 'alpha=0.3, validation=clients']
  assert table.rows == [['constant', '60.00'], ['inv_sqrt', '60.00']]
  assert table.title == 'Test accuracy, after the last round, %'
  assert table.note == (
    'Best of several settings by validation: client_learning_rate=0.1. Validation is of theta, the'
    ' global model; test accuracy of theta-bar, the mean of the client models, where there is one.'
  )


@pytest.mark.parametrize(
  'rows, columns, message',
  [
    ('rate', 'algorithm', "has no setting 'rate' in config.json; it has: .*client_learning_rate"),
    ('algorithm', 'algorithm', 'rows and columns are both algorithm'),
  ],
)
def test_an_unknown_setting_is_named(tmp_path, rows, columns, message):
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2], client_learning_rate=0.1)
  with pytest.raises(ValueError, match=message):
    cross_tables.build([run], rows, columns)


@pytest.mark.parametrize('metric', [None, scores.TEST])
def test_a_diverged_run_is_not_the_best_and_one_that_is_not_complete_is_named(tmp_path, metric):
  found = [
    run_folders.make(
      tmp_path / algorithm, [0.1, value], algorithm=algorithm, test={'test_accuracy': value}
    )
    for algorithm, value in (('fed_avg', 0.058), ('scaffold', 0.111))
  ]
  found[1].rows[-1]['validation_loss'] = math.inf
  for run in found:
    run.settings['client_schedule'] = 'constant'
  found[1].settings['rounds'] = 5
  (table,) = cross_tables.build(found, 'algorithm', 'client_schedule', metric).tables
  assert [row[1] for row in table.rows] == ['5.80', 'diverged']
  assert table.bold == {(0, 1)}
  assert table.note == f'Not complete: 1 of 2 runs: {found[1].folder} (1 of 5 rounds).'


def test_numbers_are_sorted_as_numbers(tmp_path):
  found = [
    run_folders.make(
      tmp_path / f'{n}_{alpha}', [0.1, 0.2], clients_per_round=n, task_option=[f'alpha={alpha}']
    )
    for n in (10, 2, 20, 5)
    for alpha in ('10', '3')
  ]
  (table,) = cross_tables.build(found, 'clients_per_round', 'task_option').tables
  assert [row[0] for row in table.rows] == ['2', '5', '10', '20']
  assert table.heading[1:] == ['alpha=3', 'alpha=10']
