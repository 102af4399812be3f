"""The noise of a run: as asked for, or as its target needs."""

import pytest

from scripts.cli import privacy, records, resolve


def plan(num_clients=60, **given):
  return privacy.plan(resolve.resolve(rounds=20, clients_per_round=10, **given), num_clients)


def test_a_run_without_noise_has_no_plan():
  assert plan() is None
  assert plan(aggregator='robust') is None


@pytest.mark.parametrize(
  'aggregator, options', [('dp_gaussian', ['adaptive=false']), ('dp_tree', [])]
)
def test_a_target_is_met_and_hardly_missed(aggregator, options):
  found = plan(aggregator=aggregator, aggregator_option=options, target_epsilon=5.0, delta=1e-3)
  epsilon = found.accountant.epsilons(20, 1e-3)['epsilon']
  assert 4.95 < epsilon <= 5.0
  same = plan(
    aggregator=aggregator,
    aggregator_option=[*options, f'noise_multiplier={found.accountant.noise_multiplier}'],
    delta=1e-3,
  )
  assert same.accountant.epsilons(20, 1e-3)['epsilon'] == pytest.approx(epsilon)


def test_delta_is_below_one_in_the_number_of_clients_unless_given():
  assert plan(aggregator='dp_tree', target_epsilon=5.0).delta == pytest.approx(60**-1.1)


def test_more_noise_than_counts_allow_is_refused():
  with pytest.raises(ValueError, match=r'--aggregator=dp_gaussian: count_stddev must be above 2.5'):
    plan(aggregator='dp_gaussian', aggregator_option=['noise_multiplier=5'])


def test_a_run_with_a_target_keeps_its_number_of_rounds():
  given = {'aggregator': 'dp_tree', 'target_epsilon': 5.0, 'output_dir': 'x'}
  before = {'settings': resolve.resolve(given, rounds=20).flat(), 'files': {}}
  (refused,) = records.of(resolve.resolve(given, rounds=30)).refused_changes(before)
  assert '--rounds was 20 and is now 30, on which the noise' in refused
  assert records.of(resolve.resolve(given, rounds=20)).refused_changes(before) == []
