"""Rounds of clients that come and do a part of their steps: other engines, limits, nobody."""

import numpy as np
import pytest
import tensorflow_federated as tff

import oracle
from tests.helpers import engines, small_problem
from tests.integration.corrections_oracle_test import close
from tff_adaptive import costs, population, registry, schedules, training
from tff_adaptive.client import Batching
from tff_adaptive.engine.cluster import subrounds
from tff_adaptive_tasks import task

BATCHING = Batching(4, epochs=2, shuffle=False, step_limits=True)
STEPS = [2 * -(-n // 4) for n in small_problem.NUM_EXAMPLES]


def build(batching=BATCHING):
  rate = schedules.RoundDecay(0.2, factor=0.9)
  return small_problem.process(
    'scaffold_m', rate, small_problem.linear_model, batching=batching, client_weighting='uniform'
  )


@pytest.mark.exhaustive
def test_limits_beyond_all_steps_change_no_bit_and_nobody_changes_nothing(graph):
  with tff.framework.get_context_stack().install(graph):
    batching = Batching(4, epochs=2, shuffle=False)
    limited = small_problem.Run(build(), small_problem.clients())
    today = small_problem.Run(build(batching), small_problem.clients())
    for cohort in small_problem.cohorts(3):
      today.round(cohort)
      limited.round(cohort, dict(zip(cohort, [2**31 - 1, 8, STEPS[cohort[2]]])))
      np.testing.assert_array_equal(limited.theta, today.theta)
      np.testing.assert_array_equal(limited.h, today.h)
    # A round of nobody leaves everything but the number of the round.
    before = limited.state
    limited.round([])
    assert int(limited.state.round_number) == 4
    same = limited.state._replace(round_number=before.round_number)
    engines.assert_same(same, before, rtol=0, atol=0)


# Rounds of two clients, of nobody, which lasts until the next come, and of three.
DAY = population.Trace({'c1': [(0, 1), (30, 99)], 'c3': [(0, 1), (30, 99)], 'c6': [(30, 99)]})


def trained(process, clients):
  """The result of three rounds of the training loop."""
  config = training.TrainingConfig(
    rounds=3,
    clients_per_round=3,
    cost_model=costs.CostModel(registry.Counts(), 100, 4, 2),
    population=population.Population(
      DAY, population.Speed(4.0), round_deadline=20.0, stragglers='partial'
    ),
  )
  return training.train(process, clients, lambda weights: {}, config, show_progress=False)


@pytest.mark.exhaustive
def test_every_engine_gives_the_same_rounds(native, graph):
  """TFF's own runtime up to the order of sums; subrounds are those of a cluster."""
  process = build()
  clients = task.InMemoryClientData(
    {f'c{i}': pair for i, pair in enumerate(small_problem.clients())}
  )
  two = subrounds.SubroundContext(2, server=graph)
  contexts = {'graph': graph, 'native': native, 'subrounds': two}
  results = {}
  for context in contexts:
    installed = tff.framework.get_context_stack().install(contexts[context])
    few = pytest.warns(UserWarning, match='Only 2 clients are available in round 1, fewer')
    with installed, few:
      result = trained(process, clients)
    results[context] = oracle.pack(result.state.global_model_weights.trainable)
    wanted = dict(selected=5, finished=2, partial=3, dropped=0, rounds_without_clients=1)
    assert wanted.items() <= result.summary['population'].items()
  for context in contexts:
    close(context, results[context], results['graph'])
