"""Facts about the suggestions for mistyped names."""

import pytest

from tff_adaptive import registry
from tff_adaptive._utils import suggestions


@pytest.mark.parametrize(
  'typed, expected',
  [
    ('fed_yogy', 'fed_yogi'),
    ('FedYogi', 'fed_yogi'),
    ('FedAvg', 'fed_avg'),
    ('adabest', 'ada_best'),
    ('scaffold-m', 'scaffold_m'),
  ],
)
def test_the_nearest_name_comes_first(typed, expected):
  assert suggestions.nearest(typed, registry.ALGORITHMS)[0] == expected


def test_case_hyphens_and_underscores_do_not_matter():
  assert suggestions.nearest('S-_-G D', registry.SERVER_OPTIMIZERS)[0] == 'sgd'


def test_a_name_like_none_has_no_neighbour():
  assert suggestions.nearest('zzz', registry.ALGORITHMS) == []
  assert suggestions.unknown('schedule', 'zzz', ['a', 'b']) == (
    "unknown schedule 'zzz'. Choose one of: a, b."
  )
  assert suggestions.unknown('option', 'zzz', []) == "unknown option 'zzz'. There are none."


def test_an_unknown_name_is_reported_with_its_neighbours_and_all_names():
  assert suggestions.unknown('server optimizer', 'addam', registry.SERVER_OPTIMIZERS) == (
    "unknown server optimizer 'addam'. Did you mean adam? "
    'Choose one of: sgd, sgdm, adagrad, adam, yogi.'
  )
