"""Who is available when."""

import numpy as np
import pytest

from tff_adaptive import population

IDS = [f'c{i}' for i in range(6)]


def masks(availability, rounds, seconds_a_round=60.0, seed=0, ids=IDS):
  """bool [rounds, N] of rounds 1, 2, ... that last as long as each other."""
  mask = availability.bind(ids, seed)
  return np.array([mask(t, (t - 1) * seconds_a_round) for t in range(1, rounds + 1)])


def test_always_is_always():
  assert masks(population.Always(), 3).all()


def test_independent_clients_are_there_as_often_as_their_probability_says():
  p = dict(zip(IDS, (0.0, 0.1, 0.3, 0.5, 0.9, 1.0)))
  found = masks(population.Independent(p), 4000)
  expected = np.array(list(p.values()))
  deviation = np.sqrt(expected * (1 - expected) / 4000)
  assert (np.abs(found.mean(0) - expected) <= 4 * deviation).all()
  # Independent of each other and of the round before.
  centred = found[:, 1:5] - expected[1:5]
  scale = centred.std(0)
  assert (np.abs(np.corrcoef(centred.T) - np.eye(4)) < 0.07).all()
  assert (np.abs((centred[1:] * centred[:-1]).mean(0)) < 0.07 * scale**2).all()
  same = masks(population.Independent(0.3), 4000)
  assert np.abs(same.mean(0) - 0.3).max() < 4 * np.sqrt(0.21 / 4000)


def test_a_draw_depends_on_seed_round_and_client_only():
  availability = population.Independent(0.5)
  found = masks(availability, 20)
  one = availability.bind(IDS, 0)
  np.testing.assert_array_equal(one(17, 1e9), found[16])
  np.testing.assert_array_equal(availability.bind(IDS[:4], 0)(17, 0.0), found[16][:4])
  assert (masks(availability, 20, seed=1) != found).any()


@pytest.mark.parametrize('unit, per_day', [('rounds', 12), ('hours', 720)])
def test_a_day_returns_and_each_client_has_its_share_of_it(unit, per_day):
  """Twelve rounds, or twelve hours of rounds of a minute."""
  availability = population.Diurnal(period=12, unit=unit, share=0.25)
  found = masks(availability, 3 * per_day)
  np.testing.assert_array_equal(found[:per_day], found[per_day : 2 * per_day])
  np.testing.assert_allclose(found.mean(0), 0.25, atol=1e-9)
  # One stretch a day: it begins as often as there are days.
  begins = found & ~np.roll(found, 1, axis=0)
  assert (begins.sum(0) == 3).all()
  assert len({tuple(column) for column in found.T}) > 1  # Phases of their own.


def test_phases_may_be_given():
  phases = dict(zip(IDS, (0, 0.25, 0.5, 0.75, 0, 0.5)))
  found = masks(population.Diurnal(period=4, unit='rounds', share=0.5, phases=phases), 4)
  # The times of day of rounds 1 to 4 are 1/4, 1/2, 3/4 and 0.
  for row, expected in zip(found, ('100110', '001101', '011001', '110010')):
    assert ''.join(map(str, row.astype(int))) == expected


def test_a_trace_is_followed_and_repeats():
  trace = population.Trace({'c1': [(0, 10), (50, 100)], 'c4': [(10, 20)], 'stranger': [(0, 900)]})
  mask = trace.bind(IDS, 0)
  for second, expected in (
    (0, 'c1'),
    (9.9, 'c1'),
    (10, 'c4'),
    (20, ''),
    (50, 'c1'),
    (99, 'c1'),
    (100, 'c1'),
    (115, 'c4'),
  ):
    assert ' '.join(np.array(IDS)[mask(1, second)]) == expected, second


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: population.Independent(0.0), r'in \(0, 1\], found 0'),
    (lambda: population.Independent({'c0': 1.5}), "client 'c0' must be in"),
    (lambda: population.Diurnal(period=0), 'above 0'),
    (lambda: population.Diurnal(share=1.1), r'in \(0, 1\]'),
    (lambda: population.Diurnal(unit='days'), 'rounds, hours'),
    (lambda: population.Diurnal(phases={'c0': 1.0}), r'in \[0, 1\)'),
    (lambda: population.Trace({'c0': [(5, 5)]}), 'from 5 until 5'),
    (lambda: population.Independent({'c0': 1.0}).bind(IDS, 0), '5 of 6 clients have no probab'),
    (lambda: population.Independent(dict.fromkeys(IDS, 0)).bind(IDS, 0), 'nobody would ever'),
    (lambda: population.Trace({'x': [(0, 1)]}).bind(IDS, 0), "'x', theirs is 'c0'"),
  ],
)
def test_what_cannot_be_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
