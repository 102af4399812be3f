"""Flags of aggregation: the noise of a run."""

import pytest

from scripts.cli import build, records, resolve as resolve_lib
from tests.helpers import run_folders, small_problem
from tff_adaptive import aggregation, training
from tff_adaptive.training import cohorts


def plan(num_clients=60, **given):
  settings = resolve_lib.resolve(rounds=20, clients_per_round=10, **given)
  return settings.aggregation.plan(settings.training, num_clients, settings.what.seed)


@pytest.mark.parametrize(
  'aggregator, options', [('dp_gaussian', ['adaptive=false']), ('dp_tree', [])]
)
def test_a_target_is_met_and_hardly_missed(aggregator, options):
  planned = plan(aggregator=aggregator, aggregator_option=options, target_epsilon=5.0, delta=1e-3)
  epsilon = planned.accountant.epsilon(20, 1e-3)
  assert 4.95 < epsilon <= 5.0
  if aggregator == 'dp_gaussian':
    accountant = aggregation.SampledGaussian(60, 10, planned.accountant.noise_multiplier)
    assert accountant.epsilon(20, 1e-3) == epsilon
  same = plan(
    aggregator=aggregator,
    aggregator_option=[*options, f'noise_multiplier={planned.accountant.noise_multiplier}'],
    delta=1e-3,
  )
  assert same.accountant.epsilon(20, 1e-3) == pytest.approx(epsilon)


@pytest.mark.parametrize('seed', [None, 0, 7])
def test_noise_has_a_seed_only_where_one_is_given(monkeypatch, seed):
  drawn = set()
  sample = cohorts.sample
  monkeypatch.setattr(cohorts, 'sample', lambda *given: drawn.add(given) or sample(*given))
  monkeypatch.setattr(aggregation, 'build_aggregator', lambda entry, *given: given)
  given = {'aggregator': 'dp_tree', 'target_epsilon': 5.0, 'noise_seed': seed, 'seed': 3}
  settings = resolve_lib.resolve(rounds=20, aggregator_option=['clip=0.3'], **given)
  private = settings.aggregation.plan(settings.training, 60, settings.what.seed)
  assert drawn == {(3, t, 60, 10) for t in range(1, 21)}  # The cohorts of the run.
  model = small_problem.model()
  options, built = settings.aggregation.build(settings.training, model, private)
  assert options == {'clip': 0.3, 'noise_multiplier': private.accountant.noise_multiplier}
  assert built.weights is model.initial_weights[0]
  assert (built.noise_seed, built.clients_per_round) == (seed, 10)
  callback = build._account(settings, private, training.TrainingConfig(20, 10))
  privacy = callback.summary(20)['privacy']
  assert (privacy['epsilon'], privacy['delta']) == (
    private.accountant.epsilon(20, private.delta),
    private.delta,
  )
  assert ('protects nobody' in privacy['noise']) == (seed is not None)


def test_a_run_with_a_target_keeps_its_rounds_and_counts_limit_the_noise():
  with pytest.raises(ValueError, match=r'--aggregator=dp_gaussian: count_stddev must be above 2.5'):
    plan(aggregator='dp_gaussian', aggregator_option=['noise_multiplier=5'])
  given = {'aggregator': 'dp_tree', 'target_epsilon': 5.0, 'output_dir': 'x'}
  before = run_folders.config(resolve_lib.resolve(given, rounds=20).flat())
  (refused,) = records.of(resolve_lib.resolve(given, rounds=30)).refused_changes(before)
  assert '--rounds was 20 and is now 30, on which the noise' in refused
  assert records.of(resolve_lib.resolve(given, rounds=20)).refused_changes(before) == []
