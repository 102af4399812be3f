"""What summary.json says of targets and populations."""

import pytest

from tff_adaptive.reports import summaries

ROWS = [
  {'round': 0, 'validation_loss': 3.0, 'validation_accuracy': 0.1},
  {'round': 1, 'virtual_seconds': 9.0, 'megabytes_down': 1.0, 'megabytes_up': 0.5},
  {
    **{'round': 2, 'virtual_seconds': 3.5, 'megabytes_down': 2.0, 'megabytes_up': 1.0},
    **{'validation_loss': 1.0, 'validation_accuracy': 0.7, 'inference_accuracy': 0.8},
  },
  {
    **{'round': 3, 'virtual_seconds': 7.5, 'megabytes_down': 1.0, 'megabytes_up': 0.5},
    **{'validation_loss': 2.0, 'validation_accuracy': 0.9, 'inference_accuracy': 0.6},
  },
]


def test_it_is_the_first_evaluated_round_that_is_as_good():
  found = summaries.reached(ROWS, 'accuracy', 0.8)
  assert found == {
    'target': 0.8,
    'validation_accuracy': {
      **{'round': 3, 'virtual_seconds': 20.0},
      **{'megabytes_down': 4.0, 'megabytes_up': 2.0},
    },
    'inference_accuracy': {
      **{'round': 2, 'virtual_seconds': 12.5},
      **{'megabytes_down': 3.0, 'megabytes_up': 1.5},
    },
  }


@pytest.mark.parametrize('value, number', [(3.5, 0), (2.0, 2), (1.0, 2), (0.9, None)])
def test_a_loss_is_good_where_it_is_low(value, number):
  found = summaries.reached(ROWS, 'loss', value)
  assert 'inference_loss' not in found
  reached = found['validation_loss']
  assert number == (None if reached is None else reached['round'])


def test_without_costs_and_a_clock_it_is_the_round():
  rows = [{'round': 0, 'validation_loss': 1.0}]
  assert summaries.reached(rows, 'loss', 1.0)['validation_loss'] == {'round': 0}


def test_rounds_are_added_up_and_those_of_few_and_of_nobody_counted():
  names = ('round', 'virtual_seconds', 'available', 'selected', 'finished', 'partial', 'dropped')
  table = [(1, 10.0, 9, 4, 2, 1, 1), (2, 5.5, 3, 3, 3, 0, 0), (3, 60.0, 0, 0, 0, 0, 0)]
  rows = [{**dict(zip(names, row)), 'clients': row[4] + row[5]} for row in table]
  rows.insert(0, {'round': 0, 'validation_loss': 1.0})
  rows.append({**dict(zip(names, (4, 4.5, 9, 4, 0, 0, 4))), 'clients': 0})
  assert summaries.of_population(rows, 4) == {
    'virtual_seconds': 80.0,
    'selected': 11,
    'finished': 5,
    'partial': 1,
    'dropped': 5,
    'rounds_with_few_available': 2,
    'rounds_without_clients': 2,
  }
  assert summaries.of_population([], 4)['virtual_seconds'] == 0.0
