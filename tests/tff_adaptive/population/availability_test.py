"""Who is available when."""

import collections

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tff_adaptive import population

IDS = [f'c{i}' for i in range(6)]


def masks(availability, rounds, seconds_a_round=60.0, seed=0, ids=IDS):
  """bool [rounds, N] of rounds 1, 2, ... that last as long as each other."""
  mask = availability.bind(ids, seed)
  return np.array([mask(t, (t - 1) * seconds_a_round) for t in range(1, rounds + 1)])


def test_independent_clients_are_there_as_often_as_their_probability_says():
  p = dict(zip(IDS, (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)))
  there = masks(population.Independent(p), 4000)
  expected = np.array(list(p.values()))
  deviation = np.sqrt(expected * (1 - expected) / 4000)
  assert (np.abs(there.mean(0) - expected) <= 4 * deviation).all()
  # Independent of each other and of the round before.
  centred = there[:, 1:5] - expected[1:5]
  scale = centred.std(0)
  assert (np.abs(np.corrcoef(centred.T) - np.eye(4)) < 0.07).all()
  assert (np.abs((centred[1:] * centred[:-1]).mean(0)) < 0.07 * scale**2).all()
  assert np.abs(masks(population.Independent(0.3), 4000).mean(0) - 0.3).max() < 0.029  # 4 sigma.


def test_a_draw_depends_on_seed_round_and_client_only():
  availability = population.Independent(0.5)
  there = masks(availability, 20)
  one = availability.bind(IDS, 0)
  np.testing.assert_array_equal(one(17, 1e9), there[16])
  np.testing.assert_array_equal(availability.bind(IDS[:4], 0)(17, 0.0), there[16][:4])
  assert (masks(availability, 20, seed=1) != there).any()


@pytest.mark.parametrize('unit, per_day', [('rounds', 12), ('hours', 720)])
def test_a_day_returns_and_each_client_has_its_share_of_it(unit, per_day):
  """Twelve rounds, or twelve hours of rounds of a minute."""
  availability = population.Diurnal(period=12, unit=unit, share=0.25)
  there = masks(availability, 3 * per_day)
  np.testing.assert_array_equal(there[:per_day], there[per_day : 2 * per_day])
  np.testing.assert_allclose(there.mean(0), 0.25, atol=1e-9)
  # One stretch a day: it begins as often as there are days.
  begins = there & ~np.roll(there, 1, axis=0)
  assert (begins.sum(0) == 3).all()
  assert len({tuple(column) for column in there.T}) > 1  # Phases of their own.


def test_phases_may_be_given():
  phases = dict(zip(IDS, (0, 0.25, 0.5, 0.75, 0, 0.5)))
  there = masks(population.Diurnal(period=4, unit='rounds', share=0.5, phases=phases), 4)
  # The times of day of rounds 1 to 4 are 1/4, 1/2, 3/4 and 0.
  for row, expected in zip(there, ('100110', '001101', '011001', '110010')):
    assert ''.join(map(str, row.astype(int))) == expected


def test_a_trace_is_followed_and_repeats():
  trace = population.Trace({'c1': [(0, 10), (50, 90)], 'c4': [(10, 20)], 'stranger': [(0, 100)]})
  mask = trace.bind(IDS, 0)
  first = [(0, 'c1'), (9.9, 'c1'), (10, 'c4'), (20, ''), (50, 'c1'), (89, 'c1')]
  # It repeats after the last interval of all, not only of this run's clients.
  for second, expected in (*first, (90, ''), (99, ''), (100, 'c1'), (115, 'c4')):
    assert ' '.join(np.array(IDS)[mask(1, second)]) == expected, second


@hypothesis.given(
  st.lists(
    st.tuples(st.sampled_from(IDS), st.floats(0, 1e6), st.floats(0.01, 1e4)), min_size=1, max_size=5
  ),
  st.floats(0, 1e9),
)
def test_a_trace_knows_when_the_next_client_comes(intervals, clock):
  trace = collections.defaultdict(list)
  for client, begin, length in intervals:
    trace[client].append((begin, begin + length))
  mask = population.Trace(trace).bind(IDS, 0)
  if mask(1, clock).any():
    return
  wait = mask.seconds_to_next(clock)
  assert wait > 0
  assert mask(1, clock + wait).any()
  # Until shortly before nobody is there, up to the clock's rounding.
  before = max(0.0, wait - 8 * np.spacing(clock + 1e6))
  for share in (0.1, 0.5, 0.9):
    assert not mask(1, clock + share * before).any()


def test_ids_that_do_not_fit_a_trace_are_counted():
  trace = population.Trace({'c0': [(0, 1)], 'c3': [], 'x': [(0, 1)], 'y': [(0, 2), (3, 4)]})
  assert trace.unmatched(IDS) == (
    'The trace has intervals of 3 clients, 2 of them not in this run.'
    " Of the run's 6 clients, 5 have no interval and are never drawn."
  )
  assert trace.unmatched(['c0', 'x', 'y']) is None
  assert None not in [trace.unmatched(['c0', *more]) for more in ('x', 'xyz')]


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: population.Independent(0.0), r'in \(0, 1\], found 0'),
    (lambda: population.Independent({'c0': 1.5}), "client 'c0' must be in"),
    (lambda: population.Diurnal(unit='days'), 'rounds, hours'),
    (lambda: population.Diurnal(period=0), 'period must be finite and above 0'),
    (lambda: population.Diurnal(phases={'c0': 1.0}), r'in \[0, 1\)'),
    (lambda: population.Trace({'c0': [(5, 5)]}), 'from 5 until 5'),
    (lambda: population.Trace({'c0': [(5, np.inf)]}), 'from 5 until inf'),
    (lambda: population.Trace({'c0': [(1.6e9, 1.7e9)]}), 'begins at 1600000000, years after'),
    (lambda: population.Independent({'c0': 1.0}).bind(IDS, 0), '5 of 6 clients have no probab'),
    (lambda: population.Independent(dict.fromkeys(IDS, 0)).bind(IDS, 0), 'nobody would ever'),
    (lambda: population.Trace({'x': [(0, 1)]}).bind(IDS, 0), "'x', theirs is 'c0'"),
  ],
)
def test_what_cannot_be_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_days_in_rounds_begin_and_end_with_their_round():
  """In floats 0.1 + 0.7 is just below 0.8, so round 1 would be in a share of 0.8 of the day."""
  phases = {client: i / 10 for i, client in enumerate(IDS)}
  for share in range(1, 10):
    day = population.Diurnal(period=10, unit='rounds', share=share / 10, phases=phases)
    times = np.add.outer(np.arange(1, 41), np.arange(len(IDS)))
    expected = times % 10 < share
    np.testing.assert_array_equal(masks(day, 40), expected, err_msg=f'share {share / 10}')


def test_days_in_hours_begin_and_end_at_times_that_are_sums_of_floats():
  """Hours of 3600 s in steps of 0.1 s: a sum of floats is now below, now above the multiple."""
  phases = {client: i / 10 for i, client in enumerate(IDS)}
  mask = population.Diurnal(period=1 / 3600, share=0.5, phases=phases).bind(IDS, 0)
  clock = 0.0
  for tenths in range(200):
    expected = [(tenths + i) % 10 < 5 for i in range(len(IDS))]
    np.testing.assert_array_equal(mask(1, clock), expected, err_msg=f'{tenths} tenths')
    clock += 0.1


def test_a_trace_begins_and_ends_at_times_that_are_sums_of_floats():
  mask = population.Trace({IDS[0]: [(0.3, 0.6)], IDS[1]: [(0.0, 0.3), (0.6, 0.9)]}).bind(IDS, 0)
  clock = 0.0
  for tenths in range(180):
    is_first = 3 <= tenths % 9 < 6
    expected = [is_first, not is_first, False, False, False, False]
    np.testing.assert_array_equal(mask(1, clock), expected, err_msg=f'{tenths} tenths')
    clock += 0.1
