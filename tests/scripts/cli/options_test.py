"""NAME=VALUE options become numbers, truth values or texts, and back."""

import pytest

from scripts.cli import options


def test_options_are_numbers_truth_values_or_texts():
  pairs = ['a=1', 'b=0.5', 'c=True', 'd=false', 'e=some=text', 'f=inf', 'g=nan']
  found = options.parse('task_option', pairs)
  expected = {'a': 1, 'b': 0.5, 'c': True, 'd': False, 'e': 'some=text', 'f': float('inf')}
  assert found == {**expected, 'g': 'nan'}
  assert [type(v) for v in found.values()] == [int, float, bool, bool, str, float, str]


def test_pairs_are_what_parse_reads():
  values = {'a': 1, 'b': 1e-07, 'c': True, 'd': 'text', 'e': None}
  pairs = options.pairs(values)
  assert pairs == ('a=1', 'b=1e-07', 'c=true', 'd=text')
  assert options.parse('x', pairs) == {k: v for k, v in values.items() if v is not None}


@pytest.mark.parametrize('pair', ['alpha', '=1', 'a-b=1', 'alpha='])
def test_what_is_no_pair_is_refused(pair):
  with pytest.raises(ValueError, match=f'--task_option={pair}: write it as NAME=VALUE'):
    options.parse('task_option', [pair])
