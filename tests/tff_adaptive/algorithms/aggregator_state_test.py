"""A round of nobody leaves adapted norms as they were; noise goes on."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines, small_problem
from tff_adaptive import aggregation
from tff_adaptive.algorithms import aggregator_state, components

TYPES = (
  tff.types.to_type((tff.types.TensorType(np.float32, (3,)), np.float32)),
  tff.types.TensorType(np.float32),
)
FULL = [(np.float32([3, 4, k]), np.float32(k)) for k in range(3)]
OUTLIER = [(np.full(3, 1e6, np.float32), np.float32(0)), *FULL]


def leaves(state):
  return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]


def factory(name, **options):
  weights = [np.zeros(3, np.float32), np.float32(0)]
  cohort = aggregation.Cohort(3, weights, noise_seed=3)
  return aggregation.build_aggregator(name, options, cohort)


def rounds(context, process, *cohorts):
  """The leaves of the state and the results of rounds with these updates, of weight 1 each."""

  def run():
    state = process.initialize()
    outputs = []
    for updates in cohorts:
      output = process.next(state, updates, [1.0] * len(updates))
      state = output.state
      outputs.append((leaves(state), leaves(output.result)))
    return zip(*outputs)

  return engines.run(context, run)


@pytest.mark.parametrize('name', ['robust', 'secure'])
@pytest.mark.sample(1)
def test_a_round_of_nobody_leaves_the_norms_as_they_were(graph, name):
  # Of sums that are secure the bounds adapt too; the other norms are those of 'robust'.
  if name == 'secure':
    options = {'clipping': False, 'zeroing': False}
  else:
    options = {}
  process = components.build_aggregator(factory(name, **options), *TYPES)
  norms, _ = rounds(graph, process, FULL, [], OUTLIER, FULL)
  engines.assert_same(norms[1], norms[0], rtol=0, atol=0)
  assert any(np.any(one != other) for one, other in zip(norms[2], norms[1]))
  for state in norms:
    assert all(np.isfinite(leaf).all() for leaf in state)


def test_training_goes_on_after_rounds_of_nobody(graph):
  data = small_problem.clients()
  data.append(tuple(array[:0] for array in data[0]))
  model = small_problem.linear_model
  clipping = factory('clipping')
  process = small_problem.process('fed_avg', build_model=model, aggregator=clipping)

  def train():
    run = small_problem.Run(process, data)
    states = []
    for cohort in ([0, 1, 2], [], [7], [1, 2]):
      states.append(run.round(cohort).state)
    return states

  states = engines.run(graph, train)
  norms = [leaves(state.aggregator) for state in states]
  weights = [leaves(state.global_model_weights) for state in states]
  for t in (1, 2):  # Of nobody, and of one without examples.
    engines.assert_same(norms[t], norms[0], rtol=0, atol=0)
    engines.assert_same(weights[t], weights[0], rtol=0, atol=0)
  assert any(np.any(a != b) for a, b in zip(weights[3], weights[2]))
  assert all(np.isfinite(leaf).all() for leaf in (*weights[3], *norms[3]))


@pytest.mark.parametrize('name', ['dp_gaussian', 'dp_tree'])
@pytest.mark.sample(1)
def test_noise_goes_on_in_a_round_of_nobody(graph, name):
  if name == 'dp_gaussian':
    adaptive = {'count_stddev': 1.0}
  else:
    adaptive = {}
  noisy = factory(name, noise_multiplier=1.0, clip=0.3, **adaptive)
  process = components.build_aggregator(noisy, *TYPES)
  states, results = rounds(graph, process, FULL, [], [])
  for before, after in itertools.pairwise(states):
    assert any(np.any(one != other) for one, other in zip(before, after))
    assert all(np.isfinite(leaf).all() for leaf in after)
  assert all(np.all(leaf != 0) for leaf in (*results[1], *results[2]))  # Of no client.
  assert not np.allclose(results[1][0], results[2][0])  # Other noise each time.


def test_of_tffs_own_noise_within_zeroing_only_the_zeroing_norm_is_kept(graph):
  factory = tff.aggregators.as_weighted_aggregator(tff.learning.dp_aggregator(0.1, 4.0))
  inner = factory.create(*TYPES)
  process = aggregator_state.kept_without_updates(inner)
  assert process.next.type_signature == inner.next.type_signature
  update = (np.ones(3, np.float32), np.float32(1))

  def rounds():
    first = process.next(process.initialize(), [update] * 2, [1.0] * 2).state
    return first, process.next(first, [], []).state

  first, empty = engines.run(graph, rounds)
  assert isinstance(empty, collections.OrderedDict)
  engines.assert_same(leaves(empty['zeroing_norm']), leaves(first['zeroing_norm']), rtol=0, atol=0)
  queries = [state['inner_agg'].query_state.numerator_state for state in (first, empty)]
  norms = [float(query.sum_state.l2_norm_clip) for query in queries]
  assert np.isfinite(norms).all()
  assert norms[0] != norms[1]
  # An aggregator without a state is taken as it is.
  process = tff.aggregators.MeanFactory().create(*TYPES)
  assert aggregator_state.kept_without_updates(process) is process
