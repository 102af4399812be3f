"""A run's summary, from rows written by hand."""

import math

import numpy as np
import pytest

from tff_adaptive.runs import summary as summary_lib
from tff_adaptive.runs.errors import RunFileError

COSTS = ('round', 'virtual_seconds', 'megabytes_down', 'megabytes_up')
COLUMNS = (*COSTS, 'validation_loss', 'validation_accuracy', 'inference_accuracy')
ROWS = [
  {'round': 0, 'validation_loss': 3.0, 'validation_accuracy': 0.1},
  dict(zip(COSTS, (1, 9.0, 1.0, 0.5))),
  dict(zip(COLUMNS, (2, 3.5, 2.0, 1.0, 1.0, 0.7, 0.8))),
  dict(zip(COLUMNS, (3, 7.5, 1.0, 0.5, 2.0, 0.9, 0.6))),
]


@pytest.mark.parametrize(
  'values, expected',
  [([1.0, 2.0, 6.0], 3.0), ([math.inf, 1.0], math.inf), ([math.inf, -math.inf], math.nan)],
)
def test_the_mean_is_over_the_last_100_rounds_evaluations_finite_or_not(values, expected):
  rows = [{'round': 50 + len(values), 'validation_loss': 1e6}]  # Just outside.
  rows += [{'round': 150 + i, 'validation_loss': v} for i, v in enumerate(values, 1)]
  summary = summary_lib.summarize(rows, True)
  assert summary['mean_last_100_rounds'] == pytest.approx(
    {'validation_loss': expected}, nan_ok=True
  )
  assert summary['evaluations_averaged'] == len(values)


@pytest.mark.parametrize(
  'text, words',
  [
    ('7', 'not subscriptable'),
    ('{}', "it has no 'is_complete'"),
    ('{"is_complete": true, "rounds": "many"}', 'does not say'),
  ],
)
def test_what_cannot_be_read_is_one_line_and_no_complete_run(tmp_path, text, words):
  assert not summary_lib.is_complete(str(tmp_path), 1)
  (tmp_path / 'summary.json').write_text(text)
  with pytest.raises(RunFileError, match=rf'summary\.json cannot be read \(.*{words}'):
    summary_lib.read(str(tmp_path))
  assert not summary_lib.is_complete(str(tmp_path), 1)


@pytest.mark.parametrize('lost, clients, without', [(0, 0, 0), (1, 2, 0), (2, 2, 1)])
def test_a_round_is_without_update_if_no_client_of_some_has_a_finite_one(lost, clients, without):
  row = {'round': 1, 'clients': clients, 'non_finite_clients': lost, 'validation_loss': 1.0}
  for rows, is_end in (([row], without), ([row, {'round': 2, 'clients': 1}], 0)):
    summary = summary_lib.summarize(rows, True)
    assert (summary['rounds_without_update'], summary['ends_without_update']) == (without, is_end)
    assert (summary['non_finite_clients'], summary['evaluations_averaged']) == (lost, 1)


def test_a_complete_run_has_so_many_rounds(tmp_path):
  summary_lib.write(str(tmp_path), summary_lib.summarize([{'round': 3}], True))
  assert summary_lib.is_complete(str(tmp_path), 3)
  assert not summary_lib.is_complete(str(tmp_path), 4)
  summary_lib.write(str(tmp_path), summary_lib.summarize([{'round': 3}], False))
  assert not summary_lib.is_complete(str(tmp_path), 3)


def test_it_is_the_first_evaluated_round_that_is_as_good():
  result = summary_lib.reached(ROWS, 'accuracy', 0.8)
  theta = dict(zip(COSTS, (3, 20.0, 4.0, 2.0)))
  theta_bar = dict(zip(COSTS, (2, 12.5, 3.0, 1.5)))
  assert result == {'target': 0.8, 'validation_accuracy': theta, 'inference_accuracy': theta_bar}
  assert summary_lib.reached(ROWS[:1], 'loss', 3.0)['validation_loss'] == {'round': 0}


@pytest.mark.parametrize('value, number', [(3.5, 0), (2.0, 2), (1.0, 2), (0.9, None)])
def test_a_loss_is_good_where_it_is_low(value, number):
  result = summary_lib.reached(ROWS, 'loss', value)
  assert 'inference_loss' not in result
  reached = result['validation_loss']
  assert number == (None if reached is None else reached['round'])


def test_rounds_are_added_up_and_those_of_few_and_of_nobody_counted():
  nobody = dict(available=0, selected=0, finished=0, partial=0, dropped=0, clients=0)
  lost = dict(available=4, selected=4, finished=2, partial=1, dropped=1, clients=3)
  few = dict(available=3, selected=3, finished=3, partial=0, dropped=0, clients=3)
  all_lost = dict(available=9, selected=4, finished=0, partial=0, dropped=4, clients=0)
  rows = [
    {'round': 0, 'validation_loss': 1.0},
    {'round': 1, 'virtual_seconds': 10.0, **lost},
    {'round': 2, 'virtual_seconds': 5.5, **few},
    {'round': 3, 'virtual_seconds': 60.0, **nobody},
    {'round': 4, 'virtual_seconds': 4.5, **all_lost},
  ]
  counted = dict(virtual_seconds=80.0, selected=11, finished=5, partial=1, dropped=5)
  counted |= dict(rounds_with_few_available=2, rounds_without_clients=2)
  assert summary_lib.of_population(rows, 4) == counted
  assert summary_lib.of_population([], 4)['virtual_seconds'] == 0.0


@pytest.mark.parametrize(
  'values', [(math.inf, 1), (-math.inf, 1), (math.nan, 1), (math.inf, -math.inf)]
)
def test_counts_and_costs_that_are_not_finite_are_no_error(values):
  names = ('non_finite_clients', 'megabytes_down', 'selected', 'finished', 'partial', 'dropped')
  more = {'virtual_seconds': 1.0, 'available': 5, 'clients': 5}
  rows = [{'round': t, **more, **dict.fromkeys(names, v)} for t, v in enumerate((0, *values))]
  total = values[0] + values[1]
  summary = summary_lib.summarize(rows, True)
  np.testing.assert_equal(summary['non_finite_clients'], total)
  np.testing.assert_equal(summary['totals']['megabytes_down'], total)
  np.testing.assert_equal(summary_lib.of_population(rows, 5)['dropped'], total)
