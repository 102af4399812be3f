"""A round of nobody leaves adapted norms as they were; noise goes on."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines, small_problem
from tff_adaptive import aggregation, algorithms, engine as engine_lib
from tff_adaptive.algorithms import aggregator_state
from tff_adaptive.client import Batching, ClientTraining

DATA = small_problem.clients()
OUTLIER = (np.float32(1e6) * DATA[0][0], DATA[0][1])
NOBODY = (DATA[0][0][:0], DATA[0][1][:0])
DIVERGED = (np.float32(np.nan) * DATA[0][0], DATA[0][1])
ADAPTIVE = ('robust', 'zeroing', 'clipping', 'compression', 'secure')
TYPES = (
  tff.types.to_type((tff.types.TensorType(np.float32, (3,)), np.float32)),
  tff.types.TensorType(np.float32),
)


def leaves(state):
  return [np.asarray(leaf) for leaf in tf.nest.flatten(state)]


def assert_equal(found, expected):
  assert len(found) == len(expected)
  for one, other in zip(found, expected):
    np.testing.assert_array_equal(one, other)


@pytest.fixture
def subrounds(graph):
  return engine_lib.SubroundContext(2, server=graph)


def build(name, algorithm, **options):
  model = small_problem.model()
  is_weighted = not name.startswith('dp')
  cohort = aggregation.Cohort(3, model.initial_weights[0], is_weighted, seed=3)
  more = {'num_clients': len(DATA)} if algorithm == 'fed_dyn' else {}
  return algorithms.build(
    algorithm,
    model,
    client_learning_rate=0.1,
    training=ClientTraining(batching=Batching(4)),
    client_weighting='examples' if is_weighted else 'uniform',
    aggregator=aggregation.build_aggregator(name, options, cohort),
    **more,
  )


def cohort_of(*clients):
  return [small_problem.element(client, i) for i, client in enumerate(clients)]


def run(process, cohorts):
  """The server states after each round."""
  state, states = process.initialize(), []
  for cohort in cohorts:
    if hasattr(process, 'initial_client_state'):
      before = [process.initial_client_state] * len(cohort)
      state = process.next(state, before, cohort)[0]
    else:
      state = process.next(state, cohort).state
    states.append(state)
  return states


@pytest.mark.parametrize('engine', ['graph', 'native', 'subrounds'])
@pytest.mark.parametrize('name', ADAPTIVE)
def test_a_round_of_nobody_leaves_the_norms_as_they_were(request, name, engine):
  process = build(name, 'fed_avg')
  full, outlier = cohort_of(*DATA[:3]), cohort_of(DATA[1], DATA[2], OUTLIER)
  context = request.getfixturevalue(engine)
  states = engines.run(context, run, process, [full, [], outlier, full])
  norms = [leaves(state.aggregator) for state in states]
  assert_equal(norms[1], norms[0])
  assert any(np.any(one != other) for one, other in zip(norms[2], norms[1]))
  assert all(np.isfinite(leaf).all() for state in states for leaf in leaves(state.aggregator))
  weights = [leaves(state.global_model_weights) for state in states]
  assert_equal(weights[1], weights[0])
  for before, after in itertools.pairwise(weights[1:]):  # Nobody's round is no end of training.
    moved = np.concatenate([(a - b).ravel() for a, b in zip(after, before)])
    assert 0 < np.linalg.norm(moved) < 10


@pytest.mark.parametrize('nobody', [NOBODY, DIVERGED], ids=['empty', 'diverged'])
@pytest.mark.parametrize('algorithm', ['fed_avg', 'fed_dyn'])
def test_clients_of_which_none_counts_do_not_move_the_norms(graph, algorithm, nobody):
  process = build('robust', algorithm)
  states = engines.run(graph, run, process, [cohort_of(*DATA[:3]), cohort_of(nobody)])
  assert_equal(*(leaves(state.aggregator) for state in states))


def test_by_client_id_nobody_leaves_the_norms_as_they_were(graph):
  process = algorithms.ByClientId(build('robust', 'fed_dyn'))
  full = dict(zip('abc', cohort_of(*DATA[:3])))

  def rounds():
    state, states = process.initialize(), []
    for cohort in (full, {}, full):
      state = process.next(state, cohort).state
      states.append(leaves(state.server_state.aggregator))
    return states

  first, empty, last = engines.run(graph, rounds)
  assert_equal(empty, first)
  assert all(np.isfinite(leaf).all() for leaf in last)


@pytest.mark.parametrize('name', ['dp_gaussian', 'dp_tree'])
def test_noise_goes_on_in_a_round_of_nobody(graph, name):
  adaptive = {'count_stddev': 1.0} if name == 'dp_gaussian' else {}
  process = build(name, 'fed_avg', noise_multiplier=1.0, clip=0.3, **adaptive)
  first, empty, again = engines.run(graph, run, process, [cohort_of(*DATA[:3]), [], []])
  states = [leaves(state.aggregator) for state in (first, empty, again)]
  for before, after in itertools.pairwise(states):
    assert any(np.any(one != other) for one, other in zip(before, after))
    assert all(np.isfinite(leaf).all() for leaf in after)
  moves = [
    np.concatenate([(a - b).ravel() for a, b in zip(*pair)])
    for pair in (
      [leaves(s.global_model_weights) for s in (empty, first)],
      [leaves(s.global_model_weights) for s in (again, empty)],
    )
  ]
  assert all(np.all(move != 0) for move in moves)  # Other noise each time, of no client.
  assert not np.allclose(*moves)


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
  assert_equal(leaves(empty['zeroing_norm']), leaves(first['zeroing_norm']))
  clip = 'numerator_state.sum_state.l2_norm_clip'
  found = [_of(state['inner_agg'].query_state, clip) for state in (first, empty)]
  assert np.isfinite(found).all()
  assert found[0] != found[1]


def _of(value, path):
  for name in path.split('.'):
    value = getattr(value, name)
  return float(value)


def test_an_aggregator_without_a_state_is_taken_as_it_is():
  process = tff.aggregators.MeanFactory().create(*TYPES)
  assert aggregator_state.kept_without_updates(process) is process
