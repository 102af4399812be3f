"""`tasks.load`: names and options are checked."""

import pytest

import tff_adaptive_tasks as tasks


def test_unknown_task_and_option_are_errors():
  with pytest.raises(tasks.DataError, match="unknown task 'digit'"):
    tasks.load('digit')
  with pytest.raises(tasks.DataError, match='no option clients; it has: alpha, num_clients'):
    tasks.load('digits', clients=3)
  assert len(tasks.load('digits', num_clients=1e1, alpha=1).train) == 10


@pytest.mark.parametrize(
  'task, option, value, message',
  [
    ('shakespeare', 'padding', 3, "3; it must be 'published' or 'tff'"),
    ('digits', 'alpha', 1e-100, 'alpha is 1e-100; it must be from 0.0001 to'),
    ('digits_skewed', 'unbalance', 1e9, 'unbalance is 1000000000.0; it must be from 0 to'),
    ('digits', 'num_clients', 10**12, 'each of 1000000000000 clients'),
    ('least_squares', 'num_clients', 10**12, 'num_clients is 1000000000000; it must be from 1'),
    ('least_squares', 'rows', 5_000_000, 'their product must be at most 20,000,000'),
    ('least_squares', 'unlikeness', 1e200, 'unlikeness is 1e[+]200'),
    ('stackoverflow_nwp', 'num_words', 10**12, 'num_words is 1000000000000'),
    ('stackoverflow_lr', 'num_tags', 10**12, 'num_tags is 1000000000000'),
    ('cifar10', 'l2', -1.0, 'l2 is -1.0'),
    ('cifar10', 'groups', 0, 'groups is 0; it must divide 64'),
    ('stackoverflow_lr', 'padding', 'tff', 'has no option padding'),
    ('stackoverflow_nwp', 'num_tags', 3, 'has no option num_tags'),
  ],
)
def test_an_option_of_another_kind_or_out_of_range_is_an_error(task, option, value, message):
  with pytest.raises(tasks.DataError, match=message):
    tasks.load(task, 'nowhere', **{option: value})
