"""Robust rules against NumPy, in both engines, with clients that do not count."""

import dataclasses
import typing

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import aggregation, engine
from tff_adaptive.aggregation import factories, robust

SHAPES = ((3, 2), (), (5,))
SIZE = 12
TYPE = tff.types.to_type(tuple(tff.types.TensorType(np.float32, shape) for shape in SHAPES))
WEIGHT = tff.types.TensorType(np.float32)


def updates(num_clients, outliers=1, seed=0):
  """Rows of float32, the first of them far away."""
  rows = np.random.default_rng(seed).normal(size=(num_clients, SIZE)).astype('f')
  rows[:outliers] *= 1000
  return rows


def as_value(row):
  pieces = np.split(row, np.cumsum([int(np.prod(shape)) for shape in SHAPES])[:-1])
  return tuple(piece.reshape(shape) for piece, shape in zip(pieces, SHAPES))


def as_row(value):
  return np.concatenate([np.ravel(leaf) for leaf in value])


def rounds_of(context, name, all_rows, weights=None, **options):
  """The results of rounds of an aggregator, as rows, and the last measurements."""
  cohort = factories.Cohort(99, as_value(all_rows[0][0]))  # Rounds may have fewer clients.
  process = factories.build_aggregator(name, options, cohort).create(TYPE, WEIGHT)

  def run():
    state = process.initialize()
    results = []
    for rows in all_rows:
      if weights is None:
        counts = [1.0] * len(rows)
      else:
        counts = list(weights)
      output = process.next(state, [as_value(row) for row in rows], counts)
      state = output.state
      results.append(as_row(output.result))
    return results, output.measurements

  return engines.run(context, run)


def aggregate(context, name, rows, weights=None, **options):
  (result,), measurements = rounds_of(context, name, [rows], weights, **options)
  return result, measurements


def krum_scores(rows, attackers):
  """Blanchard et al.: the squared distances to the m - f - 2 nearest others."""
  scores = []
  for i, row in enumerate(rows):
    distances = sorted(np.sum((rows[j] - row) ** 2) for j in range(len(rows)) if j != i)
    scores.append(sum(distances[: max(len(rows) - attackers - 2, 1)]))
  return np.array(scores)


@pytest.mark.parametrize('num_clients', [1, 2, 5, 8])
def test_the_median_is_numpys_to_the_bit(graph, num_clients):
  rows = updates(num_clients)
  result, _ = aggregate(graph, 'median', rows)
  np.testing.assert_array_equal(result, np.median(rows, 0))


def test_the_median_of_blocks_is_that_of_all(monkeypatch):
  rows = updates(6)
  monkeypatch.setattr(robust, '_BLOCK', 5)
  result = tf.function(robust.median)(tf.constant(rows), tf.ones([6]))
  np.testing.assert_array_equal(result, np.median(rows, 0))


@pytest.mark.parametrize('num_clients, trim, cut', [(10, 0.1, 1), (10, 0.3, 3), (7, 0.2, 1)])
def test_the_trimmed_mean_leaves_out_both_ends(graph, num_clients, trim, cut):
  rows = updates(num_clients)
  result, _ = aggregate(graph, 'trimmed_mean', rows, trim=trim)
  expected = np.sort(rows, 0)[cut : num_clients - cut].astype('d').mean(0)
  np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize('num_clients, attackers', [(1, 1), (3, 1), (7, 2), (9, 1)])
def test_krum_takes_the_update_with_the_least_score(graph, num_clients, attackers):
  rows = updates(num_clients)
  result, measured = aggregate(graph, 'krum', rows, attackers=attackers)
  best = np.argmin(krum_scores(rows.astype('d'), attackers))
  np.testing.assert_array_equal(result, rows[best])
  assert float(measured['left_out_clients']) == num_clients - 1


@pytest.mark.parametrize('selected, count', [(None, 5), (3, 3), (99, 7)])
def test_multi_krum_averages_those_with_the_least_scores(graph, selected, count):
  rows = updates(7)
  result, _ = aggregate(graph, 'multi_krum', rows, attackers=2, selected=selected)
  best = np.argsort(krum_scores(rows.astype('d'), 2))[:count]
  np.testing.assert_allclose(result, rows[best].astype('d').mean(0), rtol=1e-5, atol=1e-6)


def test_the_geometric_median_is_that_of_weiszfeld_steps_and_near_the_least_sum(graph):
  rows = updates(5)
  weights = np.array([1, 2, 3, 4, 5], 'f')
  result, _ = aggregate(graph, 'geometric_median', rows, weights, iterations=4)
  point = np.average(rows.astype('d'), axis=0, weights=weights)
  for _ in range(4):
    distances = np.linalg.norm(rows - point, axis=1)
    point = np.average(rows.astype('d'), axis=0, weights=weights / np.maximum(distances, 1e-6))
  np.testing.assert_allclose(result, point, rtol=1e-4, atol=1e-5)
  result, _ = aggregate(graph, 'geometric_median', rows, weights, iterations=60)

  def total(at):
    return np.sum(weights * np.linalg.norm(rows.astype('d') - at, axis=1))

  for step in 0.05 * np.random.default_rng(3).normal(size=(20, SIZE)):
    assert total(result) <= total(result + step)


@pytest.mark.parametrize('far', [1e3, 1e20, 3e38])
def test_the_geometric_median_takes_any_finite_numbers(far):
  rows = updates(5, outliers=0)
  rows[0] = far
  rows[1] = -far
  weights = np.array([1, 2, 3, 4, 5], 'f')
  rule = robust.GeometricMedian(iterations=3)
  result = tf.function(rule)(tf.constant(rows), tf.constant(weights))
  wide = rows.astype('d')
  point = np.average(wide, axis=0, weights=weights)
  for _ in range(3):
    distances = np.linalg.norm(wide - point, axis=1)
    point = np.average(wide, axis=0, weights=weights / distances)
  np.testing.assert_allclose(result, point, rtol=1e-3)


@pytest.mark.parametrize('norm', [None, 2.5])
def test_norm_bounding_scales_updates_down(graph, norm):
  rows = updates(5)
  weights = np.array([1, 2, 3, 4, 5], 'f')
  result, measured = aggregate(graph, 'norm_bounding', rows, weights, norm=norm)
  norms = np.linalg.norm(rows, axis=1)
  if norm is None:
    bound = np.median(norms)
  else:
    bound = norm
  bounded = rows * np.minimum(1, bound / norms)[:, np.newaxis]
  np.testing.assert_allclose(result, np.average(bounded, axis=0, weights=weights), rtol=1e-4)
  assert float(measured['norm_bound']) == pytest.approx(bound, rel=1e-6)
  assert float(measured['bounded_clients']) == np.sum(norms > bound)


@pytest.mark.parametrize('radius, iterations', [(None, 1), (1.5, 1), (None, 3)])
def test_centred_clipping_begins_at_the_last_aggregate(graph, radius, iterations):
  all_rows = [updates(5, seed=seed) for seed in (0, 1)]
  options = {'radius': radius, 'iterations': iterations}
  results, _ = rounds_of(graph, 'centred_clipping', all_rows, **options)
  centre = np.zeros(SIZE)
  for rows, result in zip(all_rows, results):
    for _ in range(iterations):
      differences = rows - centre
      distances = np.linalg.norm(differences, axis=1)
      if radius is None:
        tau = np.median(distances)
      else:
        tau = radius
      centre = centre + (differences * np.minimum(1, tau / distances)[:, np.newaxis]).mean(0)
    np.testing.assert_allclose(result, centre, rtol=1e-4, atol=1e-5)


NAMES = (
  'median',
  'trimmed_mean',
  'krum',
  'multi_krum',
  'geometric_median',
  'norm_bounding',
  'centred_clipping',
)


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.sample(3)
def test_both_engines_agree(native, graph, name):
  all_rows = [updates(5), updates(4, seed=1)]
  by_engine = [rounds_of(context, name, all_rows)[0] for context in (native, graph)]
  np.testing.assert_allclose(by_engine[0], by_engine[1], rtol=1e-5, atol=1e-6)


@pytest.mark.sample(3)
@pytest.mark.parametrize('name', NAMES)
def test_in_subrounds_as_on_ray_the_bits_are_those_of_one_process(graph, name):
  all_rows = [updates(5, outliers=0), updates(4, seed=1)]
  one, measured = rounds_of(graph, name, all_rows)
  parts, of_parts = rounds_of(engine.SubroundContext(3, server=graph), name, all_rows)
  np.testing.assert_array_equal(parts, one)
  assert of_parts == measured


@pytest.mark.sample(3)
@pytest.mark.parametrize('name', NAMES)
def test_clients_without_weight_or_with_numbers_that_are_not_finite_do_not_count(graph, name):
  rows = updates(7, outliers=0)
  rows[2] = np.nan
  rows[4, 3] = np.inf
  result, _ = aggregate(graph, name, rows, [1, 1, 1, 0, 1, 1, 1])
  expected, _ = aggregate(graph, name, rows[[0, 1, 5, 6]])
  np.testing.assert_array_equal(result, expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize('name', NAMES)
def test_without_any_update_there_is_no_aggregate_and_the_state_stays(graph, name):
  rows = updates(3, outliers=0)
  results, _ = rounds_of(graph, name, [rows, np.full([2, SIZE], np.nan, 'f'), rows])
  assert np.isnan(results[1]).all()
  if name != 'centred_clipping':  # Its centre moves on.
    np.testing.assert_array_equal(results[2], results[0])
  assert np.isfinite(results[2]).all()


@pytest.mark.sample(3)
@pytest.mark.parametrize('name', NAMES)
def test_one_client_of_nine_that_sends_anything_moves_the_result_a_little(graph, name):
  rows = updates(9, outliers=0)
  rows[4] = 1e6
  # Each Weiszfeld step takes the point, at first the mean, some eight times nearer.
  options = {'trimmed_mean': {'trim': 0.12}, 'geometric_median': {'iterations': 12}}.get(name, {})
  result, _ = aggregate(graph, name, rows, **options)
  honest = np.delete(rows, 4, 0)
  assert np.linalg.norm(result - honest.mean(0)) < 2 * np.linalg.norm(honest, axis=1).max()


def test_a_rule_of_ones_own_is_a_function_of_all_updates(graph):
  def largest(rows, weights):
    return tf.gather(rows, tf.argmax(weights * tf.norm(rows, axis=1)))

  process = aggregation.RuleFactory(largest).create(TYPE, WEIGHT)
  rows = updates(4)
  values = [as_value(row) for row in rows]
  output = engines.run(graph, lambda: process.next(process.initialize(), values, [1.0] * 4))
  np.testing.assert_array_equal(as_row(output.result), rows[0])


def test_a_rule_takes_floats_of_known_shapes():
  factory = aggregation.RuleFactory(robust.median)
  with pytest.raises(TypeError, match='takes floats of known shapes, found int32'):
    factory.create(tff.types.TensorType(np.int32, [3]), WEIGHT)


def test_norms_are_in_the_order_of_the_clients(native, graph):
  rows = updates(4)
  process = aggregation.ClientNormsFactory().create(TYPE, WEIGHT)
  values = [as_value(row) for row in rows]
  # In subrounds, as on Ray, client 2 trains beside client 0.
  for context in (native, graph, engine.SubroundContext(2, server=graph)):
    output = engines.run(
      context, lambda: process.next(process.initialize(), values, [1.0, 2.0, 3.0, 4.0])
    )
    expected = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(output.measurements['client_norms'], expected, rtol=1e-6)
    mean = np.average(rows, axis=0, weights=[1, 2, 3, 4])
    np.testing.assert_allclose(as_row(output.result), mean, rtol=1e-5, atol=1e-4)


class BadOption(typing.NamedTuple):
  rule: str
  name: str
  value: float
  message: str


@pytest.mark.parametrize(
  'option',
  [
    BadOption(
      rule='trimmed_mean', name='trim', value=0.5, message=r'trim must be in \[0, 0.5\), found 0.5'
    ),
    BadOption(rule='krum', name='attackers', value=-1, message='attackers must be at least 0'),
    BadOption(rule='multi_krum', name='selected', value=0, message='selected must be at least 1'),
    BadOption(
      rule='geometric_median',
      name='smoothing',
      value=0.0,
      message='smoothing must be finite and above 0',
    ),
    BadOption(
      rule='centred_clipping',
      name='radius',
      value=-1.0,
      message='radius must be finite and above 0',
    ),
  ],
)
def test_options_out_of_range_are_refused(option):
  with pytest.raises(ValueError, match=option.message):
    factories.build_aggregator(option.rule, {option.name: option.value}, factories.Cohort(5, []))


@pytest.mark.parametrize(
  'rule, options, size, words',
  [
    ('krum', {}, 3, 'attackers is 1, so that of 3 clients none has the .*: give fewer, or 4 or'),
    ('multi_krum', {'attackers': 4}, 6, 'attackers is 4, so that of 6 clients'),
    ('multi_krum', {'selected': 7}, 6, 'selected is 7, of 6 clients: give 6 or fewer'),
    ('trimmed_mean', {}, 9, 'trim is 0.1, which cuts off no client of 9: give 0.12 or more'),
    ('trimmed_mean', {'trim': 0.4}, 2, 'cuts off no client of 2: take the mean'),
  ],
)
def test_options_that_have_no_effect_with_so_few_clients_are_refused(rule, options, size, words):
  with pytest.raises(ValueError, match=words):
    factories.build_aggregator(rule, options, factories.Cohort(size, []))


@pytest.mark.parametrize(
  'rule, options, size',
  [('krum', {}, 4), ('multi_krum', {'selected': 6}, 6), ('trimmed_mean', {'trim': 0.12}, 9)],
)
def test_the_fewest_clients_of_an_option_are_enough(rule, options, size):
  assert factories.build_aggregator(rule, options, factories.Cohort(size, [])) is not None
  assert factories.build_aggregator('trimmed_mean', {'trim': 0.0}, factories.Cohort(2, []))


def test_rules_are_values():
  assert robust.Krum(2) == dataclasses.replace(robust.Krum(1), attackers=2)
