"""Ranks, paired differences and sensitivity of the bench, against NumPy by hand."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from scripts.comparison import methods, results, rows
from tests.helpers import bench_rows

# The mean of each method by problem; of the tumours low values are good.
HEIGHTS = {
  'digits': {'fed_avg': 0.80, 'scaffold': 0.90, 'moon': 0.85},
  'synthetic': {'fed_avg': 0.70, 'scaffold': 0.70, 'moon': 0.60},
  'tumours': {'fed_avg': 0.30, 'scaffold': 0.20, 'moon': 0.25},
}


@pytest.fixture
def table():
  whole = {}
  for problem, heights in HEIGHTS.items():
    for name, height in heights.items():
      whole.update(bench_rows.cell(problem, methods.Method(name), height))
  return whole


def collected(table, subjects=('scaffold',)):
  return results.collect(table, 'small', list(HEIGHTS), [methods.Method(s) for s in subjects])


def test_ranks_are_those_by_hand(table):
  of_three = collected(table)
  ranks = of_three.ranks()
  expected = {'fed_avg': [3, 1.5, 3], 'scaffold': [1, 1.5, 1], 'moon': [2, 3, 2]}
  for key, by_problem in expected.items():
    assert ranks.by_problem[key].tolist() == by_problem
  assert of_three.rank_on('digits', 'moon') == (2, 3)
  assert of_three.rank_on('tumours', 'fed_avg') == (3, 3)
  assert of_three.best_stored('tumours') == 'moon'  # SCAFFOLD is the subject.
  assert of_three.compared_with('digits') == ['fed_avg', 'moon']


def test_a_method_with_a_lost_run_is_last_and_one_without_values_has_no_rank(table):
  lost = [key for key in table if key.method == 'scaffold' and key.problem == 'digits']
  point = table[lost[-1]].point
  table[lost[-1]] = rows.Row(*lost[-1], point, status=rows.DIVERGED, reason='not finite')
  assert collected(table).rank_on('digits', 'scaffold') == (3, 3)
  assert collected(table).ranks().by_problem['scaffold']['digits'] == 3
  # Its two other seeds are better by 0.1 each, whose interval does not have 0.
  of_three = collected(table)
  two = of_three.difference('digits', 'scaffold', 'fed_avg')
  assert of_three.conclusion('digits', two) == 'better'
  assert of_three.verdict('digits', 'scaffold', 'fed_avg') == 'worse'
  assert of_three.verdict('digits', 'fed_avg', 'scaffold') == 'better'
  assert of_three.verdict('digits', 'scaffold', 'scaffold') == 'none'
  for key in lost:
    del table[key]
  assert collected(table).methods_on_all() == ['fed_avg', 'moon']


def test_differences_and_intervals_are_those_of_students_t(table):
  keys = [k for k in table if k[:2] == ('digits', 'scaffold') and k.stage == rows.FINAL]
  for key, value in zip(sorted(keys), (0.90, 0.95, 0.88)):
    table[key] = bench_rows.row_of(key, table[key].settings, 0.0, value=value)
  difference = collected(table).difference('digits', 'scaffold', 'fed_avg')
  values = np.array([0.90 - 0.80, 0.95 - 0.82, 0.88 - 0.78])
  np.testing.assert_allclose(difference.values, values)
  error = values.std(ddof=1) / math.sqrt(3)
  reach = stats.t.ppf(0.975, 2) * error
  np.testing.assert_allclose(difference.interval, [values.mean() - reach, values.mean() + reach])
  of_three = collected(table)
  assert of_three.conclusion('digits', difference) == 'better'
  low = of_three.difference('tumours', 'scaffold', 'fed_avg')  # A loss: less is better.
  assert low.mean == pytest.approx(-0.1)
  assert of_three.conclusion('tumours', low) == 'better'
  assert of_three.conclusion('synthetic', of_three.difference('synthetic', 'moon', 'fed_avg')) == (
    'worse'
  )
  assert of_three.difference('digits', 'scaffold', 'fed_dc') is None


def test_good_trials_are_those_within_the_margin_of_the_best(table):
  outcome = collected(table).outcomes['digits', 'fed_avg']
  # Rates 0.01, 0.0464, 0.215 and 1: the parabola falls by 0.1, 0.011, 0.011 and 0.1; the margin is
  # 0.02.
  assert outcome.good_trials == 0.5
  assert 'client_learning_rate=0.0464' in outcome.point or '0.215' in outcome.point


@pytest.mark.parametrize(('stage', 'number'), [(rows.SEARCH, 0), (rows.FINAL, 1)])
def test_refusals_are_no_values(table, stage, number):
  key = rows.Key('digits', 'fed_lc', 'small', stage, number)
  table[key] = rows.Row(*key, point='', status=rows.REFUSED, reason='it needs classes')
  of_three = collected(table)
  assert of_three.outcomes['digits', 'fed_lc'].refusal == 'it needs classes'
  assert 'fed_lc' not in of_three.on('digits')
  assert of_three.record()['methods']['fed_lc']['problems']['digits'] == {
    'refused': 'it needs classes'
  }
  assert of_three.record()['methods']['scaffold']['average_rank'] == pytest.approx(3.5 / 3)


def test_a_method_that_lacks_a_trial_has_no_value_there(table):
  del table[rows.Key('digits', 'moon', 'small', rows.SEARCH, 1)]
  assert 'moon' not in collected(table).on('digits')
  assert 'moon' in collected(table).on('synthetic')


def test_runs_that_count_have_the_settings_of_the_best_trial(table):
  key = rows.Key('digits', 'moon', 'small', rows.FINAL, 2)
  other = table[rows.Key('digits', 'moon', 'small', rows.SEARCH, 0)].point
  assert other != table[key].point
  table[key] = dataclasses.replace(table[key], point=other)
  assert 'moon' not in collected(table).on('digits')
