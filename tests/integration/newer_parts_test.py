"""Newer parts on Ray, buffered, in groups of clients, and resumed: the same bits.

The parts have among them an own model, weights that stay, a loss with features, what a client keeps
and slots that are averaged.
"""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import closeness, small_problem, subround_runs
from tff_adaptive import (
  algorithms,
  asynchrony,
  corrections,
  costs,
  engine,
  population,
  registry,
  training as training_lib,
)
from tff_adaptive.client import Batching, ClientTraining

PARTS = ('moon', 'fed_rep', 'ditto', 'fed_varp', 'fed_adamw', 'fed_ala', 'fed_proto', 'afl')
QUICK = ('fed_adamw', 'fed_ala')  # The others are marked exhaustive.
NAMES = [
  pytest.param(name, marks=[] if name in QUICK else pytest.mark.exhaustive) for name in PARTS
]


# FedBN needs a model with normalisations, which that of this file has not.
CORRECTIONS = [name for name in registry.PARTS if name in registry.ALGORITHMS and name != 'fed_bn']
REFUSED = {'mime': 'exchanges values before clients train'}


def build(name, buffered=None):
  """The process of an algorithm on the perceptron with features."""
  return algorithms.build_process(
    name,
    small_problem.model_with_features(),
    clients=corrections.RegisteredClients(small_problem.NUM_CLIENTS, 8.0),
    client_learning_rate=0.1,
    training=ClientTraining(batching=Batching(4, epochs=2)),
    asynchrony=buffered,
  )


def trained_buffered(name, context):
  """The state after some steps of a server that does not wait."""
  config = training_lib.TrainingConfig(
    rounds=4,
    clients_per_round=2,
    cost_model=costs.CostModel(registry.Counts(), num_parameters=39, batch_size=4),
    population=population.Population(speed=population.Speed(speed_sigma=1.5)),
    asynchrony=asynchrony.Buffered(4),
  )
  arrays = {f'c{i}': pair for i, pair in enumerate(small_problem.clients())}
  process = build(name, config.asynchrony)
  with tff.framework.get_context_stack().install(context):
    result = training_lib.train(
      process, tasks.InMemoryClientData(arrays), lambda _: {}, config, show_progress=False
    )
  return [np.asarray(value) for value in tf.nest.flatten(result.state)]


@pytest.mark.parametrize('name', NAMES)
@pytest.mark.sample(1)
def test_groups_of_clients_and_a_resumed_run_give_what_clients_one_by_one_do(name, graph, tmp_path):
  process = build(name)
  whole = subround_runs.trained(process, graph, 3)
  # The run stops after a checkpoint, and goes on in another call.
  subround_runs.trained(process, graph, 1, tmp_path)
  np.testing.assert_equal(subround_runs.trained(process, graph, 3, tmp_path), whole)
  for one, other in zip(
    subround_runs.trained(process, engine.GraphContext(clients_per_step=3), 3), whole
  ):
    closeness.assert_close(one, other)


@pytest.mark.parametrize('name', [pytest.param(n, marks=pytest.mark.exhaustive) for n in PARTS])
def test_a_server_that_does_not_wait_gives_the_same_bits_in_subrounds(name, graph):
  state = trained_buffered(name, graph)
  assert all(np.isfinite(value).all() for value in state)
  one, other = (trained_buffered(name, engine.SubroundContext(k, server=graph)) for k in (2, 2))
  np.testing.assert_equal(one, other)


@pytest.mark.parametrize('name', CORRECTIONS)
@pytest.mark.sample(2)
def test_a_correction_trains_without_waiting_or_says_in_one_line_why_not(name, graph):
  if name in REFUSED:
    with pytest.raises(ValueError, match=REFUSED[name]) as caught:
      trained_buffered(name, graph)
    assert '\n' not in str(caught.value)
  else:
    assert not any(np.isnan(value).any() for value in trained_buffered(name, graph))


@pytest.mark.parametrize('name', ['fed_rep', 'fed_proto', 'afl'])
def test_what_has_no_meaning_for_mixed_models_is_refused(name):
  with pytest.raises(ValueError, match='leave mixing out'):
    build(name, asynchrony.Buffered(4, mixing=True))


@pytest.mark.exhaustive
@pytest.mark.xdist_group('ray')  # In one process of pytest, which has the cluster.
@pytest.mark.parametrize('name', PARTS)
def test_workers_of_ray_give_the_bits_of_one_process(name, graph, ray_workers):
  process = build(name)
  expected = subround_runs.run(process, engine.SubroundContext(4, server=graph))
  np.testing.assert_equal(subround_runs.run(process, ray_workers), expected)
