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


def test_an_unknown_name_is_reported_with_its_neighbours_and_all_names():
  for typed, names, words in (
    ('addam', ['sgd', 'adam'], ' Did you mean adam? Choose one of: sgd, adam.'),
    ('zzz', ['a', 'b'], ' Choose one of: a, b.'),
    ('zzz', [], ' There are none.'),
  ):
    assert suggestions.unknown('optimizer', typed, names) == f'unknown optimizer {typed!r}.{words}'
