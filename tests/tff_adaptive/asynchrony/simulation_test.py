"""Who arrives for which server step: by hand, and where it must equal synchronous rounds."""

import itertools

import numpy as np
import pytest

from tests.helpers import populations
from tff_adaptive import population
from tff_adaptive.asynchrony import Buffered, simulation as simulation_lib


def simulation(clients, asynchrony, size, steps=(2, 2, 2)):
  return populations.simulation(clients, steps, size, asynchrony=asynchrony)


def people(*seconds_per_step, **options):
  """Clients that take 2 seconds, for two megabytes, and those of their steps."""
  return population.Population(speed=populations.speed(*seconds_per_step), **options)


def plans(run, number):
  return [run.plan(t) for t in range(1, number + 1)]


def test_events_by_hand():
  # They take 4, 6 and 10 seconds. At 12 two arrive: c1 began at 6, before c0, which began at 8.
  planned = plans(simulation(people(1, 2, 4), Buffered(3), 1), 6)
  assert [plan.positions.tolist() for plan in planned] == [[0], [1], [0], [2], [1], [0]]
  assert [plan.staleness.tolist() for plan in planned] == [[0], [1], [1], [3], [2], [2]]
  assert [plan.virtual_seconds for plan in planned] == [4, 2, 2, 2, 2, 0]
  assert [plan.selected for plan in planned] == [3, 1, 1, 1, 1, 0]
  factors = np.float32([1, 2**-0.5, 2**-0.5, 0.5, 3**-0.5, 3**-0.5])
  np.testing.assert_array_equal([plan.factors[0] for plan in planned], factors)


def test_who_begins_is_who_is_available_when_a_place_becomes_free():
  """c2 comes and goes while steps wait. c0 and c2 take 4 seconds, c1 takes 20."""
  there = {'c0': [(0, 7)], 'c1': [(0, 1)], 'c2': [(3, 6), (20, 99)]}
  clients = people(1, 9, 1, availability=population.Trace(there))
  first, second = plans(simulation(clients, Buffered(2), 2), 2)
  # At 4 the place of c0 is free, and c2 has come. It arrives at 8, when nobody is available.
  assert (first.positions.tolist(), first.virtual_seconds) == ([0, 2], 8)
  # At 20 c1 arrives, and c2 has come again.
  assert (second.positions.tolist(), second.virtual_seconds) == ([1, 2], 16)


def test_the_place_of_a_model_is_kept_until_nobody_trains_from_it():
  run = simulation(people(1, 2, 4, 3.5, 0.7), Buffered(5), 2, [2] * 5)
  model_at = {}
  for version, plan in enumerate(plans(run, 60)):
    for slot, tau in zip(plan.slots, plan.staleness):
      assert (slot == -1) == (tau == 0)
      assert slot == -1 or model_at[slot] == version - tau
    if plan.store >= 0:
      model_at[plan.store] = version
    assert plan.versions <= plan.under_way <= 4
  assert run.most_older_models(60) == len(model_at) <= 4


def test_too_stale_updates_are_dropped_and_their_clients_begin_anew():
  # c2, from model 0, would be three steps old at 10: it begins again, and c1 follows at 12.
  planned = plans(simulation(people(1, 2, 4), Buffered(3, max_staleness=1), 1), 4)
  assert [plan.positions.tolist() for plan in planned] == [[0], [1], [0], [1]]
  assert [plan.dropped for plan in planned] == [0, 0, 0, 1]
  assert [plan.columns()['staleness_dropped'] for plan in planned] == [0, 0, 0, 3]
  assert [plan.dropped_positions for plan in planned] == [[], [], [], [2]]
  assert planned[3].dropped_why == ['stale']
  assert [plan.virtual_seconds for plan in planned] == [4, 2, 2, 4]


@pytest.mark.parametrize(
  ('options', 'factors'),
  [
    ({'staleness': 'none'}, [1, 1, 1, 1]),
    ({'staleness': 'polynomial'}, [1, 2**-0.5, 3**-0.5, 10**-0.5]),
    ({'staleness': 'polynomial', 'a': 2.0}, [1, 1 / 4, 1 / 9, 1 / 100]),
    ({'staleness': 'hinge', 'a': 3.0, 'b': 1.0}, [1, 1, 1 / 4, 1 / 25]),
    ({'staleness': 'hinge'}, [1, 1, 1, 1 / 51]),
    ({'staleness': 'constant', 'c': 0.25}, [1, 0.25, 0.25, 0.25]),
  ],
)
def test_factors_are_those_of_the_papers(options, factors):
  asynchrony = Buffered(3, **options)
  np.testing.assert_allclose([asynchrony.factor(tau) for tau in (0, 1, 2, 9)], factors, rtol=1e-15)


def test_a_full_buffer_of_equal_clients_is_a_synchronous_round():
  steps = [5] * 9
  alike = people(*[0.1] * 9)
  waiting = plans(simulation(alike, None, 4, steps), 30)
  planned = plans(simulation(alike, Buffered(4), 4, steps), 30)
  for plan, round_plan in zip(planned, waiting):
    np.testing.assert_array_equal(plan.positions, round_plan.positions)
    assert plan.virtual_seconds == round_plan.virtual_seconds
    assert (plan.staleness.tolist(), plan.store) == ([0] * 4, -1)


def test_a_step_depends_on_its_number_alone_however_it_is_come_to():
  clients = people(*np.linspace(1, 3, 12), availability=population.Independent(0.6))
  clients = population.Population(clients.availability, clients.speed, dropout_rate=0.2)
  run = simulation(clients, Buffered(7), 3, [3] * 12)
  there = [str(plan) for plan in plans(run, 40)]
  assert [str(run.plan(t)) for t in (40, 5, 17)] == [there[39], there[4], there[16]]
  assert all(len(set(plan.positions.tolist())) == 3 for plan in plans(run, 40))
  assert not any(plan.staleness_dropped for plan in plans(run, 40))  # Who fails is not stale.
  assert sum(plan.dropped for plan in plans(run, 40)) > 0
  for plan in plans(run, 40):
    assert plan.dropped_why == ['failed'] * plan.dropped
    assert len(plan.dropped_positions) == plan.dropped


@pytest.mark.parametrize(
  ('clients', 'asynchrony', 'message'),
  [
    (people(1, 1, 1), Buffered(1), 'concurrency is 1; it must be from 2, the size of'),
    (people(1, 1, 1), Buffered(4), 'to 3, the number of clients'),
    (people(1, 1, 1, over_select=1.5), Buffered(2), 'over_select has no meaning'),
  ],
)
def test_bad_settings_are_refused(clients, asynchrony, message):
  with pytest.raises(ValueError, match=message) as raised:
    simulation(clients, asynchrony, 2)
  assert '\n' not in str(raised.value)


def test_a_step_that_never_comes_is_said(monkeypatch):
  monkeypatch.setattr(simulation_lib, '_MOST_IN_VAIN', 50)
  slow = simulation(people(1, 50, 50, round_deadline=20.0), Buffered(3), 2)
  with pytest.raises(ValueError, match=r'step 1 never comes: only 1 of the 2 clients.*101 dropped'):
    slow.plan(1)
  away = population.Trace({'c0': [(0, 100)]})  # In one step a client counts once.
  lonely = simulation(people(1, 1, 1, availability=away), Buffered(3), 2)
  with pytest.raises(ValueError, match=r'step 1 never comes: only 1 of the 2.*101 draws of nobody'):
    lonely.plan(1)


@pytest.mark.parametrize(
  'options', [{'concurrency': 0}, {'staleness': 'cubic'}, {'a': 0.0}, {'b': -1.0}, {'c': 1.5}]
)
def test_numbers_out_of_range_are_refused(options):
  with pytest.raises(ValueError, match=next(iter(options))):
    Buffered(**{'concurrency': 3, **options})


def test_a_place_is_taken_when_a_client_becomes_available():
  # c0 takes 22 seconds, c1 4: it comes at 5 and arrives at 9. c0 arrives at 22, after c1 again.
  there = population.Trace({'c0': [(0, 1000)], 'c1': [(5, 1000)]})
  clients = people(10, 1, availability=there)
  planned = plans(simulation(clients, Buffered(2), 1, [2, 2]), 5)
  assert [plan.positions.tolist() for plan in planned] == [[1], [1], [1], [1], [0]]
  assert [plan.virtual_seconds for plan in planned] == [9, 4, 4, 4, 1]
  assert [plan.under_way for plan in planned] == [1, 1, 1, 1, 1]


def test_a_day_in_hours_begins_at_its_time():
  # c1's day begins at 36 seconds, when c0 still trains: it arrives at 40. Both days last 180 s.
  phases = {'c0': 0.0, 'c1': 0.9}
  there = population.Diurnal(period=0.1, share=0.5, phases=phases)
  clients = people(50, 1, availability=there)
  planned = plans(simulation(clients, Buffered(2), 1, [2, 2]), 3)
  assert [plan.positions.tolist() for plan in planned] == [[1], [1], [1]]
  np.testing.assert_allclose([plan.virtual_seconds for plan in planned], [40, 4, 4], rtol=1e-12)


def _arrivals_by_seconds(intervals, takes, size, steps):
  """Who arrives when, on a clock that goes by whole seconds; everybody trains who can."""
  _, last_ends = zip(*itertools.chain.from_iterable(intervals))
  length = max(last_ends)
  ends = {}
  buffer = []
  arrivals = []
  second = 0
  begun = {}
  while len(arrivals) < steps:
    for i in sorted((i for i in ends if ends[i] == second), key=begun.__getitem__):
      del ends[i]
      buffer.append(i)
      if len(buffer) == size:
        arrivals.append((second, buffer))
        buffer = []
    for i, pairs in enumerate(intervals):
      is_there = any(begin <= second % length < end for begin, end in pairs)
      if is_there and i not in ends and i not in buffer:
        ends[i] = second + takes[i]
        begun[i] = (second, i)
    second += 1
  return arrivals[:steps]


@pytest.mark.parametrize('seed', range(8))
def test_everybody_trains_who_is_there(seed):
  rng = np.random.default_rng(seed)
  count = 6
  size = 2
  # No two clients arrive in the same second: the seconds are their numbers modulo 8.
  intervals = []
  for i in range(count):
    begin = 8 * rng.integers(0, 40) + i
    intervals.append([(int(begin), int(begin + rng.integers(1, 100)))])
  intervals[0].append((400, 480))
  takes = [int(8 * rng.integers(1, 9)) for _ in range(count)]
  there = population.Trace({f'c{i}': pairs for i, pairs in enumerate(intervals)})
  clients = people(*[(t - 2) / 2 for t in takes], availability=there)
  run = simulation(clients, Buffered(count), size, [2] * count)
  clock = 0.0
  for plan, (second, buffer) in zip(
    plans(run, 30), _arrivals_by_seconds(intervals, takes, size, 30)
  ):
    clock += plan.virtual_seconds
    assert (clock, plan.positions.tolist()) == (second, buffer)
