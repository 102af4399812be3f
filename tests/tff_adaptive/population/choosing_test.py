"""What a rule for cohorts may do, and what is refused in one line."""

import json

import numpy as np
import pytest

from tests.helpers.situations import known, situation
from tff_adaptive import population
from tff_adaptive.population import choosing


def test_a_client_drawn_twice_trains_once_with_the_sum_of_its_weights():
  def rule(at):
    return population.Choice(np.array([3, 1, 3]), np.array([0.25, 0.5, 1.0]))

  rule.is_weighted = True
  choice = choosing.choose(rule, situation(5, size=3))
  assert choice.positions.tolist() == [3, 1]
  assert choice.weights.tolist() == [1.25, 0.5]


def test_positions_alone_are_a_choice_in_their_order():
  choice = choosing.choose(lambda at: [4, 0, 2], situation(5, size=3))
  assert choice.positions.tolist() == [4, 0, 2]
  assert choice.weights is None
  assert choice.downloads == 3


@pytest.mark.parametrize(
  'choice, words',
  [
    ([], 'give the positions of one or more clients'),
    (['c1'], 'give the positions of one or more clients'),
    ([[1]], 'give the positions of one or more clients'),
    ([0.5], 'give the positions of one or more clients'),
    ([7], 'are not all available: choose among situation.available'),
    ([0, 1, 2], 'are 3: choose at most 2'),
    (population.Choice(np.array([1]), np.array([1.0])), 'have weights but not the attribute'),
  ],
)
def test_a_choice_that_cannot_be_is_refused(choice, words):
  def mine(at):
    return choice

  with pytest.raises(ValueError, match=f'the clients of round 1 by mine .*{words}'):
    choosing.choose(mine, situation(5, size=2))


@pytest.mark.parametrize('weights', [[1.0], [np.nan, 1.0], [-1.0, 1.0]])
def test_bad_weights_are_refused(weights):
  def mine(at):
    return population.Choice(np.array([0, 1]), np.array(weights))

  mine.is_weighted = True
  with pytest.raises(ValueError, match='by mine have bad weights: give a finite number'):
    choosing.choose(mine, situation(5, size=2))


@pytest.mark.parametrize(
  'name, need',
  [
    ('norms', 'norms'),
    ('train_losses', 'train_losses'),
    ('last_round', 'participation'),
    ('times', 'participation'),
    ('memory', 'memory'),
  ],
)
def test_what_a_rule_does_not_declare_it_cannot_use(name, need):
  at = situation(5)
  with pytest.raises(ValueError, match=rf"uses {need}, .*needs = \('{need}',\)"):
    getattr(at, name)
  assert getattr(situation(5, needs=(need,)), name) is not None


def test_losses_need_a_declaration_too():
  with pytest.raises(ValueError, match=r"uses losses, .*needs = \('losses',\)"):
    situation(5).losses([0])


def test_an_unknown_need_is_refused():
  def mine(at):
    return [0]

  mine.needs = ('loss',)
  with pytest.raises(ValueError, match="mine needs 'loss'; it may need losses, train_losses"):
    choosing.needs_of(mine)


def test_shares_are_of_the_available_clients():
  at = situation(4, available=[1, 3], num_examples=[9, 2, 9, 6])
  assert at.shares('examples').tolist() == [0.25, 0.75]
  assert at.shares('uniform').tolist() == [0.5, 0.5]
  assert situation(2, num_examples=[0, 0]).shares('examples').tolist() == [0.5, 0.5]


def test_what_was_observed_goes_through_a_checkpoint_to_the_bit():
  before = known(5)
  before.times[[1, 4]] = 1, 3
  before.last_round[[1, 4]] = 2, 7
  before.norms[[1, 4]] = 0.1, np.float32(1 / 3)
  after = known(5)
  after.norms[0] = 5.0  # Of a round that is repeated.
  after.restore(json.loads(json.dumps(before.record())))
  for name in choosing.Known.OBSERVED:
    np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
