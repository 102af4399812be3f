"""NAME=VALUE options become numbers, truth values or texts, and back."""

import pytest

from scripts.cli import options


def test_pairs_are_what_parse_reads():
  values = {'a': 1, 'b': 1e-07, 'c': True, 'd': 'some=text', 'e': None}
  pairs = options.pairs(values)
  assert pairs == ('a=1', 'b=1e-07', 'c=true', 'd=some=text')
  assert options.parse('x', pairs) == {k: v for k, v in values.items() if v is not None}


@pytest.mark.parametrize('pair', ['alpha', '=1', 'a-b=1', 'alpha='])
def test_what_is_no_pair_is_refused(pair):
  with pytest.raises(ValueError, match=f'--task_option={pair}: write it as NAME=VALUE'):
    options.parse('task_option', [pair])


def test_only_a_tasks_options_may_not_be_those_of_flags():
  with pytest.raises(ValueError, match='--task_option=seed=3: no option of a task'):
    options.parse('task_option', ['seed=3'])
  assert options.parse('staleness_option', ['seed=3']) == {'seed': 3}
