"""Aggregators by name: TFF's own, and noise that is a function of a secret and the round."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive.aggregation import factories, queries, table

N = 40_000
TYPE = tff.types.to_type((tff.types.TensorType(np.float32, (N,)), np.float32))


def cohort(size=4, **options):
  return factories.Cohort(size, [np.zeros(N, np.float32), np.float32(0)], **options)


def create(factory):
  if isinstance(factory, tff.aggregators.UnweightedAggregationFactory):
    factory = tff.aggregators.as_weighted_aggregator(factory)
  return factory.create(TYPE, tff.types.TensorType(np.float32))


def aggregate(graph, factory, updates, rounds=1):
  """Results and measurements of rounds of the same updates."""
  return rounds_of(graph, create(factory), updates, rounds)


def rounds_of(graph, process, updates, rounds):
  def run():
    state = process.initialize()
    outputs = []
    for _ in range(rounds):
      outputs.append(process.next(state, updates, [1.0] * len(updates)))
      state = outputs[-1].state
    return outputs

  return engines.run(graph, run)


def updates_of_norm(*norms):
  drawn = np.random.default_rng(1).normal(size=(len(norms), N))
  updates = [norm * x / np.linalg.norm(x) for norm, x in zip(norms, drawn)]
  return [(update.astype(np.float32), np.float32(0)) for update in updates]


def build(name, size=4, noise_seed=0, **options):
  return factories.build_aggregator(name, options, cohort(size, noise_seed=noise_seed))


NO_NOISE = {'noise_multiplier': 1e-9, 'clip': 1.0}


@pytest.mark.parametrize(
  'name, options, expected',
  [
    ('clipping', {'norm': 1.0}, [1.0, 0.5]),
    ('clipping', {}, [1.0, 0.5]),
    ('zeroing', {'norm': 0.05}, [0.0, 0.5]),
    ('zeroing', {}, [0.0, 0.5]),
    ('robust', {}, [0.0, 0.5]),
    ('robust', {'zeroing': False}, [1.0, 0.5]),
    ('robust', {'zeroing': False, 'clipping': False}, [8e4, 0.5]),
    ('secure', {'zeroing': False}, [1.0, 0.5]),
    ('compression', {'zeroing': False, 'threshold': N}, [1.0, 0.5]),
    ('dp_tree', NO_NOISE, [1.0, 0.5]),
    ('dp_gaussian', {'adaptive': False, **NO_NOISE}, [1.0, 0.5]),
  ],
)
@pytest.mark.sample(3)
def test_a_norm_clips_or_zeroes_what_is_beyond_it(graph, name, options, expected):
  updates = updates_of_norm(8e4, 0.5)
  (output,) = aggregate(graph, build(name, 2, **options), updates)
  units = [update[0] / np.linalg.norm(update[0]) for update in updates]
  mean = sum(norm * unit for norm, unit in zip(expected, units)) / 2
  np.testing.assert_allclose(output.result[0], mean, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize('name', ['clipping', 'zeroing', 'robust', 'secure'])
@pytest.mark.sample(2)
def test_a_client_without_weight_does_not_make_the_mean_smaller(graph, name):
  process = create(build(name))
  updates = updates_of_norm(1.0, 0.5)
  output = engines.run(graph, lambda: process.next(process.initialize(), updates, [1.0, 0.0]))
  np.testing.assert_allclose(output.result[0], updates[0][0], atol=1e-4)


def test_compression_rounds_to_as_many_levels_as_the_bits_give(graph):
  factory = build('compression', 1, bits=3, clipping=False, zeroing=False)
  (output,) = aggregate(graph, factory, updates_of_norm(1.0))
  assert len(np.unique(np.round(output.result[0], 6))) == 2**3


@pytest.mark.sample(1)
@pytest.mark.parametrize('name', ['dp_gaussian', 'dp_tree'])
def test_noise_has_its_size_and_comes_from_its_seed_and_the_round(graph, name):
  z = 3.0
  clip = 0.5
  size = 4
  options = {'noise_multiplier': z, 'clip': clip}
  if name == 'dp_gaussian':
    options['adaptive'] = False
  nothing = updates_of_norm(*[0.0] * size)

  process = create(build(name, size, 7, **options))

  def noise(process, rounds):
    return [np.asarray(o.result[0]) for o in rounds_of(graph, process, nothing, rounds)]

  first = noise(process, 2)
  again = noise(process, 1)
  assert np.std(first[0]) == pytest.approx(z * clip / size, rel=0.02)
  assert abs(np.mean(first[0])) < 4 * z * clip / size / np.sqrt(N)
  np.testing.assert_array_equal(first[0], again[0])
  if name == 'dp_gaussian':  # A tree's rounds share nodes.
    other = noise(create(build(name, size, 8, **options)), 1)
    assert np.max(np.abs(np.corrcoef([*first, *other]) - np.eye(3))) < 0.03


def test_trees_of_neighbouring_seeds_share_no_noise(monkeypatch):
  """tensorflow_privacy's k-th draw has the seed + k; it takes a number twice, or two numbers."""
  seen = []
  build_query = factories.tfp.TreeResidualSumQuery.build_l2_gaussian_query

  def noted(*arguments, noise_seed, **options):
    seen.append(noise_seed)
    return build_query(*arguments, noise_seed=noise_seed, **options)

  monkeypatch.setattr(factories.tfp.TreeResidualSumQuery, 'build_l2_gaussian_query', noted)
  for seed in (*range(20), 0):
    build('dp_tree', 2, seed, noise_multiplier=1.0)
  assert seen.pop() == seen[0]
  assert np.diff(np.sort(np.ravel(seen))).min() > 10**9


def test_without_a_seed_noise_comes_from_the_operating_systems_secret(graph):
  nothing = updates_of_norm(0.0)
  noises = []
  for _ in range(2):
    factory = build('dp_gaussian', 1, None, noise_multiplier=1.0, adaptive=False)
    noises.append(np.asarray(aggregate(graph, factory, nothing)[0].result[0]))
  assert abs(np.corrcoef(noises)[0, 1]) < 0.03


def test_each_tensor_each_round_and_the_count_have_noise_of_their_own():
  query = queries.SeededGaussianSumQuery(2.0, 1.0, (3, 5))
  state = query.initial_global_state()
  noise = []
  for _ in range(2):
    both, state, event = query.get_noised_result((tf.zeros([N]), tf.zeros([N])), state)
    noise += both
    assert float(event.noise_multiplier) == 0.5
  assert np.max(np.abs(np.corrcoef(noise) - np.eye(4))) < 0.03
  state = queries.SeededAdaptiveClipSumQuery(
    (3, 5, 7, 9),
    **{'initial_l2_norm_clip': 1.0, 'noise_multiplier': 1.0, 'target_unclipped_quantile': 0.5},
    **{'learning_rate': 0.2, 'clipped_count_stddev': 1.0, 'expected_num_records': 4.0},
  ).initial_global_state()
  of_count = state.quantile_estimator_state.below_estimate_state.numerator_state
  assert [*state.sum_state.seed.numpy(), *of_count.seed.numpy()] == [3, 5, 7, 9]


def test_the_clipping_norm_adapts_as_tffs_own_does(graph):
  updates = updates_of_norm(0.2, 0.4, 0.6, 0.8)
  how = dict(target_unclipped_quantile=0.8, learning_rate=0.4)
  of_tff = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(0.0, 4.0, **how)
  options = dict(quantile=0.8, clip_learning_rate=0.4, count_stddev=1e-5)
  mine = build('dp_gaussian', 4, noise_multiplier=1e-6, **options)

  def norms(factory):
    outputs = aggregate(graph, factory, updates, 3)
    return [float(tf.nest.flatten(output.measurements)[0]) for output in outputs]

  actual = norms(mine)
  expected = norms(of_tff)
  np.testing.assert_allclose(actual, expected, rtol=1e-4)
  assert len(set(actual)) == 3


def test_adaptive_noise_follows_the_norm_and_differs_from_round_to_round(graph):
  z = 0.5
  stddev = 1.0
  factory = build('dp_gaussian', 4, noise_multiplier=z, count_stddev=stddev)
  outputs = aggregate(graph, factory, updates_of_norm(0.0, 0.0, 0.0, 0.0), 3)
  on_updates = (z**-2 - (2 * stddev) ** -2) ** -0.5
  clip = 0.1
  for output in outputs:
    assert np.std(output.result[0]) == pytest.approx(on_updates * clip / 4, rel=0.02)
    clip = float(next(iter(tf.nest.flatten(output.measurements))))
  noise = [np.asarray(output.result[0]) for output in outputs]
  assert np.max(np.abs(np.corrcoef(noise) - np.eye(3))) < 0.03


def test_what_cannot_be_is_refused_and_the_mean_left_to_the_algorithm():
  assert build('mean') is None
  for name in ('dp_gaussian', 'dp_tree'):
    assert table.aggregator(name).is_private
    with pytest.raises(ValueError, match=f'{name} needs a noise_multiplier: give 1.0'):
      build(name)
  with pytest.raises(ValueError, match='clients_per_round must be at least 1, found 0'):
    cohort(0)
  for seed in (-1, 2**62):
    with pytest.raises(ValueError, match='noise_seed must be at '):
      cohort(3, noise_seed=seed)
