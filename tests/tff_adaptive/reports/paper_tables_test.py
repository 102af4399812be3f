"""The papers' tables: what is bold, what stands beside, what is chosen by what."""

import math

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import paper_tables, published, scores

ALGORITHMS = dict(
  zip(published.OPTIMIZERS, ('fed_adagrad', 'fed_adam', 'fed_yogi', 'fed_avgm', 'fed_avg'))
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
  for task, entry in published.TASKS.items():
    found = {
      name: scores.Score([figure / entry.factor])
      for name, figure in zip(published.OPTIMIZERS, entry.figures)
    }
    assert scores.is_best(found, f'validation_{entry.metric}', within=0.5) == BOLD[task], task


def runs_of_table_1(folder, task, clients, column='validation_accuracy'):
  entry = published.TASKS[task]
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
  (table,) = paper_tables.tasks(runs).tables
  assert table.heading == ['', *published.OPTIMIZERS]
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
  (table,) = paper_tables.tasks(runs).tables
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
  (table,) = paper_tables.participation(runs).tables
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
  (table,) = paper_tables.participation(runs).tables
  assert table.rows[0][3:] == ['50.00 ± 0.00', '50.00 ± 0.00 (1 of 3 diverged)']
  assert table.bold == {(0, 3), (0, 4)}
  runs[2].rows[-1]['validation_loss'] = 1000.0
  (table,) = paper_tables.participation(runs).tables
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
  (table,) = paper_tables.participation(runs).tables
  assert [row[2] for row in table.rows] == ['', 'alpha = 3', 'alpha = 10', 'alpha = auto']


def test_the_note_names_cells_without_options(tmp_path):
  runs = [
    _of_own_task(tmp_path, '', algorithm, rate, value)
    for algorithm, values in (('fed_avg', (0.4, 0.5)), ('ada_best', (0.5, 0.4)))
    for rate, value in zip((0.1, 0.2), values)
  ]
  (table,) = paper_tables.participation(runs).tables
  assert 'client_learning_rate=0.2 (10 % t.py:load, FedAvg)' in table.note


def test_a_task_has_no_figure_of_a_diverged_run_and_names_one_that_is_not_complete(tmp_path):
  runs = [
    run_folders.make(tmp_path / name, [0.1, value], algorithm=name, task='digits', rounds=rounds)
    for name, value, rounds in (('fed_avg', 0.4, 1), ('fed_yogi', 0.5, 1), ('fed_adam', 0.3, 9))
  ]
  runs[1].rows[-1]['non_finite_clients'] = 2.0
  (table,) = paper_tables.tasks(runs).tables
  assert dict(zip(table.heading, table.rows[0]))['FedYogi'] == 'diverged'
  assert {table.heading[j] for _, j in table.bold} == {'FedAvg'}
  assert table.note == f'Not complete: 1 of 3 runs: {tmp_path / "fed_adam"} (1 of 9 rounds).'


def test_theta_bar_is_taken_where_it_was_evaluated(tmp_path):
  test = {'test_accuracy': 0.5, 'test_inference_accuracy': 0.6}
  assert scores.test_accuracy(run_folders.make(tmp_path / 'a', [0.1, 0.2], test=test)) == 0.6
  with pytest.raises(ValueError, match='has no accuracy on test data'):
    scores.test_accuracy(run_folders.make(tmp_path / 'b', [0.1, 0.2]))


@pytest.mark.parametrize('rounds, number', [(4000, 1), (2, 1), (1, 2)])
def test_the_summary_of_fewer_rounds_is_not_that_of_the_last(tmp_path, rounds, number):
  """Of a run that was complete, was begun again with more rounds, and has not ended yet."""
  made = run_folders.make(tmp_path / 'a', [0.1, 0.2], test={'test_accuracy': 0.5}, rounds=rounds)
  made.rows[-1]['round'] = number
  with pytest.raises(ValueError, match=f'{number} of {rounds} rounds are done, and summary.json'):
    scores.test_accuracy(made)


def test_runs_without_a_task_are_refused(tmp_path):
  with pytest.raises(ValueError, match='names no task and algorithm'):
    paper_tables.tasks([run_folders.make(tmp_path / 'a', [0.1, 0.2])])
