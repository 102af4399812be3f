"""Facts about the suggestions for mistyped names."""

from tff_adaptive import registry
from tff_adaptive._utils import suggestions


def test_the_nearest_name_comes_first():
  for typed, expected in (
    ('fed_yogy', 'fed_yogi'),
    ('FedYogi', 'fed_yogi'),
    ('scaffold-m', 'scaffold_m'),
    ('adabest', 'ada_best'),
  ):
    assert suggestions.nearest(typed, registry.ALGORITHMS)[0] == expected


def test_an_unknown_name_is_reported_with_its_neighbours_and_all_names():
  for typed, names, words in (
    ('addam', ['sgd', 'adam'], ' Did you mean adam? Choose one of: sgd, adam.'),
    ('zzz', ['a', 'b'], ' Choose one of: a, b.'),
    ('zzz', [], ' There are none.'),
  ):
    assert suggestions.unknown('optimizer', typed, names) == f'unknown optimizer {typed!r}.{words}'
