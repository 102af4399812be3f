"""Differences paired by seed, against Student's t worked out by hand."""

import math

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import differences, tables

COLUMN = 'validation_accuracy'
# The 97.5 % quantiles of Student's t with 1 and 2 degrees of freedom, from a printed table.
T1 = 12.706
T2 = 4.303


def runs(folder, ends, column=COLUMN, seeds=None):
  if seeds is None:
    seeds = range(len(ends))
  return [
    run_folders.make(folder / str(seed), [0.1, end], column, seed=seed)
    for seed, end in zip(seeds, ends)
  ]


def test_the_interval_is_that_of_students_t_of_the_paired_differences(tmp_path):
  one = runs(tmp_path / 'a', [0.5, 0.6, 0.7])
  other = runs(tmp_path / 'b', [0.3, 0.5, 0.4, 0.9], seeds=[2, 1, 0, 5])
  difference = differences.paired(one, other, COLUMN)
  np.testing.assert_allclose(
    sorted(difference.values), [0.1, 0.1, 0.4]
  )  # By seed, and not by order.
  mean = 0.2
  error = math.sqrt((0.01 + 0.01 + 0.04) / 2 / 3)
  low, high = difference.interval
  assert low == pytest.approx(mean - T2 * error, rel=1e-3)
  assert high == pytest.approx(mean + T2 * error, rel=1e-3)
  assert not difference.is_concluded
  # The deviation is sqrt(0.03) = 0.1732. With n seeds the interval's half is t s / sqrt(n):
  # 2.776 * 0.1732 / sqrt(5) = 0.2150 with 5 seeds, 2.571 * 0.1732 / sqrt(6) = 0.1818 with 6.
  assert difference.seeds_needed == 6


def test_what_one_two_and_three_seeds_can_conclude(tmp_path):
  best = [0.8, 0.8, 0.8]
  groups = {
    'best': runs(tmp_path / 'best', best),
    'worse': runs(tmp_path / 'worse', [0.5, 0.51, 0.52]),
    'unclear': runs(tmp_path / 'unclear', [0.4, 0.7, 0.85]),
    'two': runs(tmp_path / 'two', [0.6, 0.62]),
    'one': runs(tmp_path / 'one', [0.7]),
    'others': runs(tmp_path / 'others', [0.7], seeds=[9]),
    'diverged': runs(tmp_path / 'diverged', [math.nan]),
  }
  table = differences.table(groups, COLUMN)
  assert table.title == 'Validation accuracy: differences from best, paired by seed'
  rows = {row[0]: row[1:] for row in table.rows}
  assert rows['worse'] == ['3', '-0.2900', '-0.3148 to -0.2652', 'worse', '2']
  assert rows['unclear'][3] == 'none'
  assert int(rows['unclear'][4]) > 3
  low = -0.19 - T1 * 0.01
  high = -0.19 + T1 * 0.01
  assert rows['two'] == ['2', '-0.1900', f'{low:+.4f} to {high:+.4f}', 'worse', '2']
  assert rows['one'] == ['1', '-0.1000', '', 'none: one seed concludes nothing', '']
  assert rows['others'][3] == rows['diverged'][3] == 'no seed in common'


def test_settings_with_a_diverged_run_are_not_called_better_by_their_other_seeds(tmp_path):
  groups = {
    'whole': runs(tmp_path / 'whole', [0.5, 0.51, 0.52]),
    'lost': runs(tmp_path / 'lost', [0.8, 0.8, math.nan]),
  }
  (row,) = differences.table(groups, COLUMN, against='whole').rows
  assert (row[1], row[4]) == ('2', 'none: 1 diverged')
  (row,) = differences.table(groups, COLUMN, against='lost').rows
  assert row[4] == 'none: 1 diverged'


def test_of_errors_small_values_are_better_and_another_row_may_be_the_reference(tmp_path):
  losses = 'validation_loss'
  groups = {
    'a': runs(tmp_path / 'a', [0.5, 0.6], losses),
    'b': runs(tmp_path / 'b', [0.3, 0.4], losses),
  }
  assert differences.table(groups, losses).rows[0][:2] == ['a', '2']  # b is the best.
  (row,) = differences.table(groups, losses, against='a').rows
  assert row == ['b', '2', '-0.2000', '-0.2000 to -0.2000', 'better', '2']
  with pytest.raises(ValueError, match="no row is called 'c': compare with one of a, b"):
    differences.table(groups, losses, against='c')
  assert differences.table({'a': groups['a']}, losses) is None


@pytest.mark.parametrize('column', ['theta_norm', 'clients_test_accuracy_std'])
def test_what_is_no_metric_is_larger_or_smaller_and_never_better(tmp_path, column):
  groups = {
    'a': runs(tmp_path / 'a', [0.5, 0.6], column),
    'b': runs(tmp_path / 'b', [0.3, 0.4], column),
  }
  for against, conclusion in (('a', 'smaller'), ('b', 'larger')):
    (row,) = differences.table(groups, column, against=against).rows
    assert row[4] == conclusion
  groups['lost'] = runs(tmp_path / 'lost', [0.5, 0.6, math.nan], column)
  assert differences.table(groups, column, against='b').rows[1][4] == 'none: 1 diverged'


def test_a_comparison_has_the_differences_after_each_metrics_table(tmp_path):
  groups = {'a': runs(tmp_path / 'a', [0.5, 0.6]), 'b': runs(tmp_path / 'b', [0.3, 0.4])}
  first, second = tables.comparison(groups, [COLUMN]).tables
  assert first.heading[1] == 'runs'
  assert second.rows[0][0] == 'b'
  assert 'alone' in second.note
  assert len(tables.comparison({'a': groups['a']}, [COLUMN]).tables) == 1
  single = {label: members[:1] for label, members in groups.items()}
  assert 'nothing can be concluded' in tables.comparison(single, [COLUMN]).tables[1].note
