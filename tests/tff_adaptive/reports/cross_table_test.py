"""Any setting by any other: cells, the best of a column, what is chosen by what."""

import math

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import cross_table


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
  made = cross_table.build(runs, 'correction', 'server_optimizer')
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
  (table,) = cross_table.build(runs, 'client_schedule', 'task_option', 'test_accuracy').tables
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
    cross_table.build([run], rows, columns)


@pytest.mark.parametrize('metric', [None, cross_table.TEST])
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
  (table,) = cross_table.build(found, 'algorithm', 'client_schedule', metric).tables
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
  (table,) = cross_table.build(found, 'clients_per_round', 'task_option').tables
  assert [row[0] for row in table.rows] == ['2', '5', '10', '20']
  assert table.heading[1:] == ['alpha=3', 'alpha=10']
