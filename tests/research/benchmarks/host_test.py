"""research/benchmarks/host.py: what a busy machine does to a measurement is said."""

import pytest

from research.benchmarks import host

QUIET = host.State(load=0.1, busy=0.02, stolen=5.0, total=1000.0)


def after(stolen=5.0):
  return host.State(load=2.0, busy=0.9, stolen=stolen, total=1100.0)


@pytest.mark.parametrize(
  'before, later, spreads, expected',
  [
    (QUIET, after(), {'a': 0.05}, []),
    (host.State(3.0, 0.5, 5.0, 1000.0), after(), {}, ['other processes used 50%']),
    (QUIET, after(stolen=15.0), {}, ['the host kept 10%']),
    (QUIET, after(), {'a': 0.2, 'b': 0.4}, ['repetitions differ']),
  ],
)
def test_each_disturbance_is_named(before, later, spreads, expected):
  found = host.between(before, later, spreads)['not_quiet']
  assert len(found) == len(expected)
  assert all(text.startswith(words) for text, words in zip(found, expected))


def test_the_spread_is_that_of_the_quartiles():
  assert host.spread([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == (6.0 - 2.0) / 4.0
  assert host.spread([1.0, 9.0, 1.0]) == 0.0
