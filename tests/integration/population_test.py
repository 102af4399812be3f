"""Rounds of clients that come, fail and hand in part of their work, against the NumPy oracle."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import least_squares_solutions as solutions, oracle, small_problem
from tests.integration.corrections_oracle_test import close
from tff_adaptive import (
  algorithms,
  costs,
  engine,
  population,
  registry,
  schedules,
  training,
)
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.engine.cluster import subrounds
from tff_adaptive.training import cohorts
from tff_adaptive_tasks import least_squares, task

N = small_problem.NUM_CLIENTS
BATCHING = Batching(4, epochs=2, shuffle=False, step_limits=True)
STEPS = [2 * -(-n // 4) for n in small_problem.NUM_EXAMPLES]

# The oracle's class, and options that it and the process take.
CASES = {'scaffold_m': (oracle.ScaffoldM, {}), 'ada_best': (oracle.AdaBest, dict(mu=0.2, beta=0.8))}


def simulated(chosen, steps, cohort_size, seed):
  """The rounds of a population of clients of so many steps, who receive and send a megabyte."""
  return population.Simulation(
    chosen,
    [f'c{i}' for i in range(len(steps))],
    steps,
    seed=seed,
    cohort_size=cohort_size,
    bytes_down=1_000_000,
    bytes_up=1_000_000,
    draw=cohorts.sample,
  )


def plans(rounds=10, seed=3):
  """Cohorts with their K_i: some clients away, some that fail, some with part of their steps."""
  chosen = population.Population(
    population.Independent(0.5),
    population.Speed(1.0, downlink=1.0, uplink=1.0, speed_sigma=0.5),
    round_deadline=6.0,
    stragglers='partial',
    dropout_rate=0.3,
  )
  simulation = simulated(chosen, STEPS, 4, seed)
  found = [simulation.plan(t) for t in range(1, rounds + 1)]
  return [(plan.positions.tolist(), dict(zip(plan.positions, plan.steps))) for plan in found]


PLANS = [*plans(8), ([], {}), *plans(2, seed=4)]


def build(name, weighting='uniform', batching=BATCHING):
  rate = schedules.RoundDecay(0.2, factor=0.9)
  options = CASES[name][1] if name in CASES else {}
  return small_problem.process(name, rate, batching=batching, client_weighting=weighting, **options)


def expected(name, weighting):
  make, options = CASES[name]
  return make(
    small_problem.theta_0(),
    small_problem.clients(),
    server=oracle.Sgd(1.0),
    eta_l=lambda t: 0.2 * 0.9**t,
    batch_size=4,
    epochs=2,
    by_examples=weighting == 'examples',
    **options,
  )


def compare(run, reference, mu=1.0):
  for cohort, limits in PLANS:
    run.round(cohort, limits)
    reference.round(cohort, limits)
  close('theta', run.theta, reference.theta)
  if run.is_stateful:
    close('theta_bar', run.theta_bar, reference.theta_bar)
    close('h', run.h, reference.h)
    for i in range(N):
      close(f'h_{i}', mu * run.h_i(i), reference.h_i[i])


def test_the_plans_have_what_the_cases_need():
  sizes = [len(cohort) for cohort, _ in PLANS]
  assert 0 in sizes
  assert len(set(sizes)) > 3
  is_partial = [k < STEPS[i] for _, limits in PLANS for i, k in limits.items()]
  assert 0.2 < np.mean(is_partial) < 0.9
  assert {i for cohort, _ in PLANS for i in cohort} == set(range(N))


@pytest.mark.parametrize(
  'name, weighting, clients_per_step', [('scaffold_m', 'uniform', 2), ('ada_best', 'examples', 1)]
)
def test_dropped_and_partial_clients_equal_the_formulas(name, weighting, clients_per_step):
  """Two at a time too: groups of clients of unequal limits."""
  mu = 0.2 if name == 'ada_best' else 1.0
  with engine.graph_context(clients_per_step=clients_per_step):
    run = small_problem.Run(build(name, weighting), small_problem.clients())
    compare(run, expected(name, weighting), mu)


def test_limits_beyond_all_steps_change_no_bit_and_nobody_changes_nothing(graph):
  with tff.framework.get_context_stack().install(graph):
    batching = Batching(4, epochs=2, shuffle=False)
    limited, today = (
      small_problem.Run(process, small_problem.clients())
      for process in (build('scaffold_m'), build('scaffold_m', batching=batching))
    )
    for cohort in small_problem.cohorts(3):
      today.round(cohort)
      limited.round(cohort, dict(zip(cohort, [2**31 - 1, 8, STEPS[cohort[2]]])))
      np.testing.assert_array_equal(limited.theta, today.theta)
      np.testing.assert_array_equal(limited.h, today.h)
    # A round of nobody leaves everything but the number of the round.
    before = [np.asarray(leaf) for leaf in tf.nest.flatten(_without_round(limited.state))]
    limited.round([])
    after = [np.asarray(leaf) for leaf in tf.nest.flatten(_without_round(limited.state))]
    for one, other in zip(before, after):
      np.testing.assert_array_equal(one, other)
    assert int(limited.state.round_number) == 4


def _without_round(state):
  return [
    list(state.global_model_weights.trainable),
    list(state.inference_weights.trainable),
    dict(state.correction),
    tf.nest.flatten(state.finalizer),
  ]


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


def test_every_engine_gives_the_same_rounds(native, graph):
  """TFF's own runtime up to the order of sums; subrounds are those of a cluster."""
  process = build('scaffold_m')
  clients = task.InMemoryClientData(
    {f'c{i}': pair for i, pair in enumerate(small_problem.clients())}
  )
  two = subrounds.SubroundContext(2, server=graph)
  contexts = {'graph': graph, 'native': native, 'subrounds': two}
  found = {}
  for context in contexts:
    installed = tff.framework.get_context_stack().install(contexts[context])
    few = pytest.warns(UserWarning, match='In round 1, 2 clients are available, of 3')
    with installed, few:
      result = trained(process, clients)
    found[context] = oracle.pack(result.state.global_model_weights.trainable)
    wanted = dict(selected=5, finished=2, partial=3, dropped=0, rounds_without_clients=1)
    assert wanted.items() <= result.summary['population'].items()
  for context in contexts:
    close(context, found[context], found['graph'])


# Federated least squares: five clients of one full-gradient step an epoch, eight of them.
K, EVERY_STEP, RATE = 5, 8, 0.125


def test_partial_work_tilts_fed_avg_and_leaves_scaffold_at_the_solution():
  """Slow clients take few steps: f_k then counts in proportion to K_k, roughly."""
  # (A_k, b_k), float64.
  problem = solutions.systems(tasks.load('least_squares', dtype='float64', rows=16).train)
  seconds = {f'c{k}': s for k, s in enumerate((1.0, 1.0, 2.0, 4.0, 8.0))}
  speed = population.Speed(downlink=1.0, uplink=1.0, profiles={'seconds_per_step': seconds})
  x_ls = solutions.least_squares(*problem)
  tilted = solutions.gradient_descent(*problem, [8, 8, 4, 2, 1], RATE)
  assert np.linalg.norm(tilted - x_ls) > 0.3
  for name, failing, wanted, atol in (
    ('fed_avg', 0.0, tilted, 1e-6),
    ('scaffold', 0.3, x_ls, 1e-5),
  ):
    process = getattr(algorithms, f'build_{name}')(
      least_squares.build_model(3, dtype='float64'),
      client_learning_rate=RATE,
      training=ClientTraining(batching=Batching(None, epochs=EVERY_STEP, step_limits=True)),
      client_weighting='uniform',
      **({'num_clients': K} if name == 'scaffold' else {}),
    )
    chosen = population.Population(
      speed=speed, round_deadline=10.0, stragglers='partial', dropout_rate=failing
    )
    simulation = simulated(chosen, [EVERY_STEP] * K, K, seed=0)
    assert failing or sorted(simulation.plan(1).steps) == [1, 2, 4, 8, 8]
    with engine.graph_context():
      run = small_problem.Run(process, list(zip(*problem)))
      for t in range(1, 61):
        plan = simulation.plan(t)
        run.round(plan.positions.tolist(), dict(zip(plan.positions, plan.steps)))
    np.testing.assert_allclose(run.theta, wanted, atol=atol)
