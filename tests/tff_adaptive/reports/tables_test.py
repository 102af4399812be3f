"""The table of the comparison: runs that diverged, stopped early or were not evaluated yet."""

import math

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import tables

COLUMN = 'validation_accuracy'


def _table(runs, column=COLUMN):
  made = tables.comparison_table({'a': runs}, column)
  _, _, _, mean, last, _ = made.rows[0]
  return mean, last, made.note


def _seeds(folder, curves, column=COLUMN, rounds=4):
  return [
    run_folders.make(folder / str(seed), values, column, every=2, seed=seed, rounds=rounds)
    for seed, values in enumerate(curves)
  ]


def test_the_initial_model_is_the_last_of_no_run_where_others_were_evaluated(tmp_path):
  runs = _seeds(tmp_path, [[0.1, 0.4, 0.8], [0.1, 0.6, 0.6], [0.1]])
  assert _table(runs) == (
    '0.6000 ± 0.0000 (2 of 3 runs)',
    '0.7000 ± 0.1414 (2 of 3 runs)',
    f'Not complete: 1 of 3 runs: {tmp_path / "2"} (0 of 4 rounds).',
  )
  assert _table(runs[2:])[:2] == ('', '0.1000')
  made = tables.comparison_table({'a': runs[:2], 'b': runs[2:]}, COLUMN)
  assert [row[4] for row in made.rows] == ['0.7000 ± 0.1414', '']


@pytest.mark.parametrize('end', [math.nan, math.inf, 500.0])
def test_an_accuracy_of_a_run_whose_loss_diverged_is_in_no_mean(tmp_path, end):
  runs = _seeds(tmp_path, [[0.1, 0.4, 0.8], [0.1, 0.6, 0.6]])
  for row, loss in zip(runs[1].rows, (2.0, 2.0, 2.0, 2.0, end)):
    row['validation_loss'] = loss
  assert _table(runs) == ('nan ± nan', 'nan ± nan', f'Diverged: 1 of 2 runs: {tmp_path / "1"}.')
  assert _table(runs[:1]) == ('0.6000', '0.8000', '')


def test_a_loss_that_is_finite_and_diverged_is_in_no_mean(tmp_path):
  runs = _seeds(tmp_path, [[2.0, 1.0, 1.0], [2.0, 1.0, 500.0]], 'validation_loss')
  assert _table(runs, 'validation_loss')[:2] == ('nan ± nan', 'nan ± nan')


def test_small_losses_are_told_apart(tmp_path):
  runs = _seeds(tmp_path, [[1.0, 1.2e-6, 1.4e-6]], 'validation_loss')
  assert _table(runs, 'validation_loss')[:2] == ('1.3e-06', '1.4e-06')
