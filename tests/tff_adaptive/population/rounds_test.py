"""What becomes of a round, by hand and against a plain simulation of each client's events."""

import fractions
import json

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from tests.helpers.populations import simulation, speed
from tff_adaptive import population
from tff_adaptive._utils import draws
from tff_adaptive.population import rounds
from tff_adaptive.training import cohorts

NOBODY = dict.fromkeys(rounds.COLUMNS, 0)


def test_nobody_there_is_a_round_of_nobody_that_lasts():
  rare = population.Independent(0.01)
  run = simulation(population.Population(rare, speed(1, 1)), [8, 8], 2)
  assert run.plan(1).columns() == {**NOBODY, 'virtual_seconds': 60}
  run = simulation(population.Population(rare, speed(1, 1), round_deadline=100), [8, 8], 2)
  assert run.plan(1).columns() == {**NOBODY, 'virtual_seconds': 100}


@pytest.mark.parametrize('deadline', [None, 100])
def test_with_a_trace_it_lasts_until_somebody_comes(deadline):
  day = population.Trace({'c0': [(0, 10)], 'c1': [(500, 600)]})
  run = simulation(population.Population(day, speed(1, 1), deadline), [8, 8], 2)
  plans = [run.plan(t) for t in range(1, 14)]
  # A round takes 2 + 8 seconds.
  assert [plan.positions.tolist() for plan in plans] == [[0], [], *10 * [[1]], [0]]
  assert plans[1].columns() == {**NOBODY, 'virtual_seconds': 490}
  # They end at 10, 500 and 510: a multiple at the start is of the round before.
  assert [plan.passes(255) for plan in plans[:3]] == [False, True, True]
  assert [plan.passes(500) for plan in plans[:3]] == [False, True, False]
  # Asked every 60 seconds nobody would ever be there.
  gone = population.Trace({'c0': [(30, 60)], 'c1': [(30, 60)]})
  run = simulation(population.Population(gone, speed(1, 1), deadline), [28, 28], 2)
  plans = [run.plan(t) for t in range(1, 7)]
  assert [len(plan.positions) for plan in plans] == [0, 2, 0, 2, 0, 2]
  assert [plan.virtual_seconds for plan in plans] == 6 * [30]


@pytest.mark.parametrize(
  'availability',
  [
    population.Diurnal(period=0.01, share=0.4),
    population.Trace({f'c{i}': [(7.1 * i, 7.1 * i + 0.3), (300, 301.7)] for i in range(20)}),
  ],
)
def test_a_resumed_run_plans_what_an_uninterrupted_one_does(availability):
  options = dict(round_deadline=20.0, over_select=1.5, stragglers='partial', dropout_rate=0.2)
  speeds = population.Speed(speed_sigma=1.0, bandwidth_sigma=1.0)
  clients = population.Population(availability, speeds, **options)
  sizes = [1 + i % 7 for i in range(30)]
  whole = simulation(clients, sizes, 5, seed=4)
  plans = [whole.plan(t) for t in range(1, 61)]
  resumed = simulation(clients, sizes, 5, seed=4)
  for t in (60, 37, 38, 1):
    assert str(plans[t - 1]) == str(resumed.plan(t))
  other_seed = simulation(clients, sizes, 5, seed=5)
  assert other_seed.plan(60).virtual_seconds != plans[59].virtual_seconds


@hypothesis.settings(max_examples=60)
@hypothesis.given(
  st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=8),
  st.integers(1, 8),
  st.sampled_from([1.0, 1.3, 2.0]),
  st.sampled_from([None, 5.0, 7.5]),
  st.booleans(),
  st.sampled_from([0.0, 0.4]),
  st.integers(0, 99),
)
def test_a_round_is_what_becomes_of_each_client(
  clients, cohort_size, over_select, deadline, partial, rate, seed
):
  """Each client for itself, then the server: a list of events in the order of time."""
  cohort_size = min(cohort_size, len(clients))
  partial = partial and deadline is not None
  steps = [k for k, _ in clients]
  options = dict(round_deadline=deadline, over_select=over_select, dropout_rate=rate)
  options['stragglers'] = 'partial' if partial else 'drop'
  of_clients = population.Population(speed=speed(*(s for _, s in clients)), **options)
  if deadline and all(2 + (1 if partial else k) * s > deadline for k, s in clients):
    with pytest.raises(ValueError, match='the fastest client needs'):
      simulation(of_clients, steps, cohort_size, seed)
    return
  plan = simulation(of_clients, steps, cohort_size, seed).plan(1)
  size = min(len(clients), int(np.ceil(round(over_select * cohort_size, 6))))
  drawn = [int(i) for i in cohorts.sample(seed, 1, len(clients), size)]
  chance = draws.generator(seed, 1, draws.FAILURE).random((2, len(clients)))
  arrivals = []
  last = 0.0
  for order, i in enumerate(drawn):
    k, s = clients[i]
    fit = max((n for n in range(k + 1) if deadline is None or 2 + n * s <= deadline), default=0)
    if partial:
      k = fit
    if chance[0, i] < rate:
      event = 1 + int(chance[1, i] * k) * s
    elif k == 0 or fit < k:
      event = np.inf
    else:
      event = 2 + k * s
      arrivals.append((event, order, i, k))
    last = max(last, event if deadline is None else min(event, deadline))
  counted = sorted(arrivals)[:cohort_size]
  assert plan.virtual_seconds == (counted[-1][0] if len(counted) == cohort_size else last)
  by_draw = sorted(counted, key=lambda arrival: arrival[1])
  assert plan.positions.tolist() == [i for _, _, i, _ in by_draw]
  assert plan.steps.tolist() == [k for _, _, _, k in by_draw]
  assert plan.partial == sum(k < steps[i] for _, _, i, k in counted)
  assert plan.finished + plan.partial + plan.dropped == plan.selected == size


def test_what_is_recorded_of_it_is_plain_and_tells_apart():
  def record(**options):
    recorded = population.Population(**options).record()
    assert json.loads(json.dumps(recorded)) == recorded
    return recorded

  assert record()['availability'] == {'kind': 'Always'}
  records = [
    record(),
    *(record(availability=population.Independent({'a': p, 'b': 0.5})) for p in (0.5, 0.25)),
    record(availability=population.Trace({'a': [(0, 1)]})),
    record(speed=speed(1.0)),
    record(round_deadline=3.0),
  ]
  assert len({json.dumps(each) for each in records}) == len(records)
  assert record(availability=population.Independent({'b': 0.5, 'a': 0.25})) == records[2]
  of_numpy = record(round_deadline=np.float32(3), over_select=np.int64(2))
  assert of_numpy == record(round_deadline=3.0, over_select=2)


@pytest.mark.parametrize(
  'options, message',
  [
    ({'round_deadline': 0}, 'round_deadline must be finite and above 0'),
    ({'over_select': 0.9}, 'over_select must be finite and at least 1'),
    ({'dropout_rate': 1.0}, r'dropout_rate must be in \[0, 1\)'),
    ({'stragglers': 'wait'}, "'wait'; it must be one of drop, partial"),
    ({'stragglers': 'partial'}, 'no round_deadline cuts their work'),
  ],
)
def test_what_cannot_be_is_refused(options, message):
  with pytest.raises(ValueError, match=message):
    population.Population(**options)


def test_sums_of_floats_cost_no_step_and_draw_no_client_more():
  # 2.3 - 1 - 1 = 0.2999...98 are three steps of 0.1, and 1.12 * 25 = 28.000...04 clients are 28.
  clients = population.Population(
    speed=speed(*[0.1] * 40), round_deadline=2.3, over_select=1.12, stragglers='partial'
  )
  plan = simulation(clients, [5] * 40, 25).plan(1)
  assert plan.selected == 28
  assert plan.steps.tolist() == [3] * 25
  # What is missing is a step less.
  late = population.Population(speed=speed(0.1), round_deadline=2.299999, stragglers='partial')
  assert simulation(late, [5], 1).plan(1).steps.tolist() == [2]


@pytest.mark.parametrize('stragglers, needed', [('drop', 'needs 6 to rec'), ('partial', 'needs 3')])
def test_a_client_without_examples_neither_holds_a_round_up_nor_makes_a_deadline_met(
  stragglers, needed
):
  clients = population.Population(speed=speed(1, 1), round_deadline=60, stragglers=stragglers)
  plan = simulation(clients, [0, 4], 2).plan(1)
  assert sorted(zip(plan.positions, plan.steps)) == [(0, 0), (1, 4)]
  assert (plan.finished, plan.dropped, plan.virtual_seconds) == (2, 0, 6)
  short = population.Population(speed=speed(1, 1), round_deadline=2.5, stragglers=stragglers)
  with pytest.raises(ValueError, match=f'the fastest client {needed}'):
    simulation(short, [0, 4], 2)


@pytest.mark.parametrize(('every', 'lasts'), [(3.0, 1.4), (0.3, 0.1), (0.7, 0.1), (10.0, 0.2)])
def test_each_multiple_of_the_virtual_seconds_is_passed_in_its_round(every, lasts):
  # In decimal numbers, which the clock's floats only approximate.
  exact_every = fractions.Fraction(str(every))
  exact_lasts = fractions.Fraction(str(lasts))
  run = simulation(population.Population(speed=speed(lasts)), [1], 1)
  run._times = run._times._replace(download=np.zeros(1), upload=np.zeros(1))
  plans = [run.plan(t) for t in range(1, 2001)]
  passed = [t for t, plan in enumerate(plans, 1) if plan.passes(every)]
  expected = [
    t
    for t in range(1, 2001)
    if t * exact_lasts // exact_every > (t - 1) * exact_lasts // exact_every
  ]
  assert passed == expected


def test_a_late_client_that_fails_is_known_when_it_fails_not_at_the_deadline():
  """c0 takes 2 + 2 s, c1 would take 2 + 80 s and is late at 50 s. c1 fails, c0 does not."""
  clients = population.Population(speed=speed(1, 40), round_deadline=50.0, dropout_rate=0.5)

  def chances(seed):
    """Of each client in round 1: the chance of a failure, and when."""
    return draws.generator(seed, 1, draws.FAILURE).random((2, 2))

  def fits(seed):
    (fails_0, fails_1), (_, when) = chances(seed)
    return fails_1 < 0.5 <= fails_0 and when < 0.5

  seed = next(seed for seed in range(100) if fits(seed))
  plan = simulation(clients, [2, 2], 2, seed=seed).plan(1)
  assert (plan.positions.tolist(), plan.dropped) == ([0], 1)
  # c1 fails in its first step, a second after the start: the round lasts as long as c0 takes.
  assert plan.virtual_seconds == 4
