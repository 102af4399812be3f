"""Oort: scores by hand, penalties for slow clients, exploration, and the pacer."""

import math

import numpy as np
import pytest

from tests.helpers.situations import known, situation
from tff_adaptive import population
from tff_adaptive.population import oort

NEEDS = population.Oort.needs


def choose(rule, number, memory, size=3, observed=None, **options):
  at = situation(10, size, number, needs=NEEDS, stored=memory, observed=observed, **options)
  return rule(at).positions.tolist()


def test_at_first_clients_are_explored_by_their_sizes():
  sizes = [1, 1, 1, 1, 1, 9, 9, 9, 9, 9]
  counts = np.zeros(10)
  for seed in range(500):
    positions = choose(population.Oort(window=1.0), 1, {}, num_examples=sizes, seed=seed, size=5)
    counts[positions] += 1
  assert counts.tolist() == [0] * 5 + [500] * 5


def test_a_slow_client_is_explored_rarely():
  seconds = [1.0] * 9 + [100.0]
  counts = np.zeros(10)
  for seed in range(300):
    counts[choose(population.Oort(window=10.0), 1, {}, seconds=seconds, seed=seed)] += 1
  assert counts[9] == 0  # (1 / 100)^2 of the chance of another.
  assert counts[:9].min() > 60


def seen(last_round=1, losses=None):
  if losses is None:
    losses = np.arange(1.0, 11.0)
  else:
    losses = np.array(losses)
  return {'times': 1, 'last_round': last_round, 'squared_losses': losses**2}


def test_scores_are_those_of_the_formula():
  rule = population.Oort(clip=0.5, penalty=2.0, threshold=50.0)
  clients = known(10, [2] * 10, range(10))
  for name, values in seen(last_round=range(1, 11)).items():
    getattr(clients, name)[:] = values
  utility = 2 * np.arange(1.0, 11.0)
  positions = np.arange(10)
  scores = rule._scores(positions, positions, utility, clients, 20)
  low = 2 * 0.999
  high = 20
  clip = 12  # The entry at 5 of ten in rising order.
  for i in range(10):
    uncertainty = math.sqrt(0.1 * math.log(20) / (i + 1))
    expected = (min(utility[i], clip) - low) / (high - low) + uncertainty
    assert scores[i] == pytest.approx(expected)
  preferred = rule._preferred(clients.seconds, 50.0)
  assert preferred == 5
  assert rule._slowness(clients.seconds, preferred)[8] == pytest.approx((5 / 8) ** 2)
  assert rule._slowness(clients.seconds, preferred)[5] == 1
  assert rule._preferred(clients.seconds, 100.0) == math.inf


def test_exploitation_takes_clients_of_high_utility_and_explores_the_others_by_turn():
  rule = population.Oort(exploration=0.0, least_exploration=0.0, cut_off=1.0, clip=1.0)
  memory = {}
  cohort = choose(rule, 5, memory, observed=seen())
  assert sorted(cohort) == [7, 8, 9] or sorted(cohort)[0] >= 6
  assert memory['exploited'] == cohort
  slow = [0.0] * 7 + [50.0] * 3
  cohort = choose(
    population.Oort(exploration=0.0, least_exploration=0.0, cut_off=1.0, clip=1.0, threshold=50.0),
    5,
    {},
    observed=seen(),
    seconds=slow,
  )
  assert max(cohort) <= 6


def test_the_share_of_exploration_shrinks_to_its_least_and_ends_when_all_are_known():
  rule = population.Oort(exploration=0.8, decay=0.5, least_exploration=0.3)
  memory = {}
  shares = []
  for number in range(1, 4):
    choose(rule, number, memory)
    shares.append(memory['exploration'])
  assert shares == [0.4, 0.3, 0.3]
  exploits_only = choose(rule, 4, memory, observed=seen())
  assert memory['exploited'] == exploits_only


def test_a_round_without_clients_to_explore_does_not_end_exploration():
  rule = population.Oort(exploration=0.8, decay=0.5, least_exploration=0.1)
  half_seen = seen()
  half_seen['times'] = [1] * 5 + [0] * 5
  memory = {}
  shares = []
  for number, available in enumerate((range(10), range(5), range(10)), 1):
    cohort = choose(rule, number, memory, observed=half_seen, available=list(available), size=4)
    shares.append((memory['exploration'], sum(position >= 5 for position in cohort)))
  # By hand: 0.8 / 2, / 2, / 2; int(4 * (1 - share)) clients are exploited, the others explored.
  assert shares == [(0.4, 2), (0.2, 0), (0.1, 1)]


def test_the_pacer_prefers_slower_clients_when_utility_is_flat_and_quicker_ones_after_a_jump():
  rule = population.Oort(pacer_step=2, pacer_delta=10.0, threshold=30.0)
  utility = np.ones(10)

  def paced(history, now=4):
    clients = known(10)
    clients.last_round[:] = now - 1
    memory = {'exploited_utility': list(history), 'exploited': [0]}
    # The last entry is added: 1 / (1 + 1e-4).
    return rule._paced(memory, clients, utility, now)

  assert paced([1.0, 1.0, 1.0]) == 40.0
  assert paced([0.1, 0.1, 1.0]) == 20.0
  assert paced([1.0, 1.0, 2.0]) == 30.0
  assert paced([1.0, 1.0, 1.0], now=5) == 30.0
  assert paced([1.0], now=2) == 30.0


def test_its_memory_is_plain_and_short():
  rule = population.Oort(pacer_step=2)
  memory = {}
  for number in range(1, 12):
    choose(rule, number, memory, observed=seen())
  assert len(memory['exploited_utility']) == 4
  assert {type(value) for value in memory.values()} <= {float, int, list}


def test_clients_of_no_chance_only_fill_the_cohort():
  generator = np.random.default_rng(0)
  drawn = oort._drawn(np.arange(4), np.array([0.0, 1.0, 0.0, 2.0]), 3, generator)
  assert set(drawn) >= {1, 3}
  assert len(set(drawn)) == 3
