"""NAME=VALUE options become numbers, truth values or texts, and back."""

import pytest

from scripts.cli import options


def test_pairs_are_what_parse_reads():
  values = {'a': 1, 'b': 1e-07, 'c': True, 'd': 'some=text', 'seed': 3, 'e': None}
  pairs = options.pairs(values)
  assert pairs == ('a=1', 'b=1e-07', 'c=true', 'd=some=text', 'seed=3')
  assert options.parse('x', pairs) == {k: v for k, v in values.items() if v is not None}


@pytest.mark.parametrize('pair', ['alpha', '=1', 'a-b=1', 'alpha=', 'seed=3'])
def test_what_is_no_pair_or_of_a_task_a_flag_is_refused(pair):
  if pair == 'seed=3':
    words = 'is not a task option'
  else:
    words = 'write it as NAME=VALUE'
  with pytest.raises(ValueError, match=f'--task_option={pair}:? {words}'):
    options.parse('task_option', [pair])
