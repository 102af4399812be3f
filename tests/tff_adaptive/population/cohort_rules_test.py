"""Built-in rules: whom they choose, how often, and that weighted ones are unbiased."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from tests.helpers.situations import situation
from tff_adaptive import costs, population, registry, training
from tff_adaptive.population import choosing, cohort_rules
from tff_adaptive.training import cohorts

SIZES = [1, 5, 2, 4]
NORMS = [0.5, np.nan, 3.0, 1.0]


def weighted_rules():
  for objective in choosing.OBJECTIVES:
    yield population.Replacement(objective)
    yield population.BySize(objective)
    for by in ('norms', 'losses'):
      yield population.Importance(objective, by=by)


def at_four_clients(rule, size=2, **options):
  observed = {'norms': NORMS, 'train_losses': NORMS}
  needs = choosing.needs_of(rule)
  return situation(4, size, num_examples=SIZES, observed=observed, needs=needs, **options)


@pytest.mark.parametrize('rule', weighted_rules(), ids=repr)
@pytest.mark.parametrize('available', [[0, 1, 2, 3], [0, 2, 3]])
def test_the_mean_over_all_possible_cohorts_is_the_aggregate_of_all_clients(rule, available):
  """By enumeration of all draws of 3 clients, with their probabilities."""
  at = at_four_clients(rule, 3, available=available)
  p = rule.probabilities(at)
  assert p.sum() == pytest.approx(1)
  updates = np.random.default_rng(0).normal(size=(4, 5))
  mean = np.zeros(5)
  for drawn in itertools.product(range(len(available)), repeat=3):
    choice = rule.of_draws(at, np.array(drawn))
    mean += np.prod(p[list(drawn)]) * (choice.weights @ updates[choice.positions])
  np.testing.assert_allclose(mean, at.shares(rule.objective) @ updates[available], rtol=1e-12)


@pytest.mark.parametrize('rule', weighted_rules(), ids=repr)
def test_draws_have_their_probabilities(rule):
  counts = np.zeros(4)
  for seed in range(500):
    at = at_four_clients(rule, 4, seed=seed)
    p = rule.probabilities(at)
    drawn = at.generator().choice(4, size=4, p=p)
    counts += np.bincount(drawn, minlength=4)
    expected = rule.of_draws(at, drawn)
    np.testing.assert_array_equal(rule(at).positions, expected.positions)
  errors = counts - 2000 * p
  assert (np.abs(errors) < 4 * np.sqrt(2000 * p * (1 - p))).all()


def test_importance_follows_the_last_norms_and_shares():
  rule = population.Importance('examples', mix=0.1)
  values = np.array([1 * 0.5, 5 * 1.5, 2 * 3.0, 4 * 1.0]) / 12  # An unknown norm is the mean, 1.5.
  expected = 0.9 * values / values.sum() + 0.1 / 4
  np.testing.assert_allclose(rule.probabilities(at_four_clients(rule)), expected)
  unseen = situation(4, 2, num_examples=SIZES, needs=('norms',))
  np.testing.assert_allclose(
    dataclasses.replace(rule, mix=1e-6).probabilities(unseen), np.array(SIZES) / 12, atol=1e-6
  )


def test_uniform_draws_are_those_of_a_run_without_a_rule():
  for number in (1, 2, 9):
    choice = population.Uniform()(situation(30, 7, number, seed=5))
    np.testing.assert_array_equal(choice.positions, cohorts.sample(5, number, 30, 7))


@pytest.mark.parametrize('candidates, expected', [(0, 4), (3, 3), (2, 2), (99, 6)])
def test_power_of_choice_takes_the_highest_losses_of_its_candidates(candidates, expected):
  asked = []

  def evaluate(positions):
    asked.extend(positions.tolist())
    return 1.0 * positions

  options = {'num_examples': [3, 1, 2, 0, 5, 1, 4], 'needs': ('losses',), 'evaluate': evaluate}
  rule = population.PowerOfChoice(candidates=candidates)
  choice = rule(situation(7, 2, **options))
  assert len(set(asked)) == len(asked) == expected
  assert 3 not in asked  # It has no examples.
  assert choice.positions.tolist() == sorted(asked)[:-3:-1]


def test_fewer_candidates_than_clients_of_a_round_are_refused():
  rule = population.PowerOfChoice(candidates=4)
  words = 'candidates is 4, but 5 clients are chosen in a round: give 5 or more'
  with pytest.raises(ValueError, match=words):
    rule(situation(7, 5, needs=('losses',)))
  with pytest.raises(ValueError, match=words):
    training.TrainingConfig(2, 5, cohort=rule)
  assert training.TrainingConfig(2, 4, cohort=rule).cohort is rule
  of_run = {'cost_model': costs.CostModel(registry.Counts(), 3, 2), 'cohort': rule}
  asks_more = population.Population(population.Always(), population.Speed(), over_select=1.25)
  with pytest.raises(ValueError, match=words):
    training.TrainingConfig(2, 4, population=asks_more, **of_run)


def test_power_of_choice_draws_candidates_by_their_sizes():
  counts = np.zeros(4)
  for seed in range(2000):
    options = {'num_examples': SIZES, 'needs': ('losses',), 'evaluate': lambda p: np.ones(len(p))}
    choice = population.PowerOfChoice(candidates=1)(situation(4, 1, seed=seed, **options))
    counts[choice.positions] += 1
  p = np.array(SIZES) / 12
  assert (np.abs(counts - 2000 * p) < 4 * np.sqrt(2000 * p * (1 - p))).all()


def test_a_candidate_whose_loss_is_not_a_number_comes_last():
  options = {'needs': ('losses',), 'evaluate': lambda p: np.where(p == 2, np.nan, 1.0 * p)}
  choice = population.PowerOfChoice(candidates=4)(situation(4, 3, **options))
  assert choice.positions.tolist() == [3, 1, 0]


def test_cyclic_clients_take_part_in_turn():
  turns = [population.Cyclic()(situation(5, 2, t)).positions.tolist() for t in range(1, 6)]
  assert turns == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]
  present = situation(5, 2, 2, available=[0, 3])
  assert population.Cyclic()(present).positions.tolist() == [3, 0]


def test_in_each_pass_every_client_takes_part_once():
  rounds = [population.Shuffled()(situation(7, 3, t)).positions.tolist() for t in range(1, 10)]
  passes = [[*rounds[i], *rounds[i + 1], *rounds[i + 2]] for i in (0, 3, 6)]
  assert [len(cohort) for cohort in rounds] == 3 * [3, 3, 1]
  for one_pass in passes:
    assert sorted(one_pass) == list(range(7))
  assert len({tuple(one_pass) for one_pass in passes}) == 3
  absent = situation(7, 3, 1, available=[rounds[0][0]])
  assert population.Shuffled()(absent).positions.tolist() == rounds[0][:1]


@pytest.mark.parametrize('name', ['cyclic', 'shuffled'])
def test_rules_in_turn_go_on_by_whole_cohorts_where_few_are_available_in_a_round(name):
  # 8 clients, 4 in a round, so that a pass has two rounds; in round 3 one is available.
  rule = population.build_cohort(name)
  cohorts = {}
  for number in range(1, 5):
    whole = choosing.choose(rule, situation(8, 4, number))
    cohorts[number] = whole.positions.tolist()
  few = choosing.choose(rule, situation(8, 1, 3, available=cohorts[3][1:2], full_size=4))
  assert few.positions.tolist() == cohorts[3][1:2]
  few = choosing.choose(rule, situation(8, 3, 4, available=sorted(cohorts[4][:3]), full_size=4))
  assert sorted(few.positions.tolist()) == sorted(cohorts[4][:3])
  assert sorted(cohorts[3] + cohorts[4]) == list(range(8))


def test_strata_have_their_parts_and_clients_the_same_chances():
  groups = {f'c{i}': 'ab'[i >= 6] for i in range(10)}
  counts = np.zeros(10)
  for seed in range(3000):
    choice = population.Stratified(groups=groups)(situation(10, 4, seed=seed))
    assert len(set(choice.positions.tolist())) == 4
    of_a = int(np.sum(choice.positions < 6))
    assert of_a in (2, 3)  # 4 * 0.6 is 2.4.
    counts[choice.positions] += 1
  assert np.abs(counts - 1200).max() < 4 * math.sqrt(3000 * 0.4 * 0.6)


def test_strata_are_of_similar_sizes_unless_given():
  sizes = [10, 1, 20, 2, 30, 3, 40, 4]
  for seed in range(20):
    at = situation(8, 4, seed=seed, num_examples=sizes)
    sizes_in_cohort = np.array(sizes)[population.Stratified(strata=4)(at).positions]
    assert sorted(np.searchsorted([3, 10, 30], sizes_in_cohort, side='right').tolist()) == [
      0,
      1,
      2,
      3,
    ]
  with pytest.raises(ValueError, match="2 clients have no group, 'c1' among them: give one"):
    population.Stratified(groups={'c0': 'a'})(situation(3, 2))


@pytest.mark.parametrize('name', [n for n in population.COHORTS if n != 'oort'])
def test_each_rule_chooses_available_clients_and_the_same_ones_again(name):
  rule = population.build_cohort(name)

  def choose(number):
    at = situation(
      9,
      3,
      number,
      available=[0, 2, 3, 5, 8],
      num_examples=range(1, 10),
      needs=choosing.needs_of(rule),
      evaluate=lambda p: np.sin(p),
    )
    return choosing.choose(rule, at)

  for number in range(1, 8):
    first = choose(number)
    again = choose(number)
    assert set(first.positions) <= {0, 2, 3, 5, 8}
    np.testing.assert_array_equal(first.positions, again.positions)


def test_names_and_options_are_checked():
  with pytest.raises(ValueError, match='Did you mean uniform'):
    population.build_cohort('unifrom')
  with pytest.raises(ValueError, match=r'unknown option of importance .*Did you mean by'):
    population.build_cohort('importance', {'bye': 1})
  with pytest.raises(ValueError, match='by must be norms or losses'):
    population.build_cohort('importance', {'by': 'sizes'})
  with pytest.raises(ValueError, match=r'mix must be in \(0, 1\], found 0'):
    population.build_cohort('importance', {'mix': 0.0})
  assert population.build_cohort('power_of_choice', {'candidates': 7}).candidates == 7
  assert cohort_rules.options_of('uniform') == ()
