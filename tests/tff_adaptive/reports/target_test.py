"""When a target was first reached."""

import pytest

from tff_adaptive.reports import target

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
  found = target.reached(ROWS, 'accuracy', 0.8)
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
  found = target.reached(ROWS, 'loss', value)
  assert 'inference_loss' not in found
  reached = found['validation_loss']
  assert number == (None if reached is None else reached['round'])


def test_without_costs_and_a_clock_it_is_the_round():
  rows = [{'round': 0, 'validation_loss': 1.0}]
  assert target.reached(rows, 'loss', 1.0)['validation_loss'] == {'round': 0}
