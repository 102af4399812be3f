"""Rounds of clients that come, fail and hand in part of their work, against the NumPy oracle."""

import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import oracle, small_problem
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
from tff_adaptive_tasks import least_squares, least_squares_solutions as solutions, task

N = small_problem.NUM_CLIENTS
BATCHING = Batching(4, epochs=2, shuffle=False, step_limits=True)
STEPS = [2 * -(-n // 4) for n in small_problem.NUM_EXAMPLES]

# The oracle's class, and options that it and the process take.
CASES = {'scaffold_m': (oracle.ScaffoldM, {}), 'ada_best': (oracle.AdaBest, dict(mu=0.2, beta=0.8))}


def plans(rounds=10, seed=3):
  """Cohorts with their K_i: some clients away, some that fail, some with part of their steps."""
  chosen = population.Population(
    population.Independent(0.5),
    population.Speed(1.0, downlink=1.0, uplink=1.0, speed_sigma=0.5),
    round_deadline=6.0,
    stragglers='partial',
    dropout_rate=0.3,
  )
  simulation = population.Simulation(
    chosen,
    [f'c{i}' for i in range(N)],
    STEPS,
    seed=seed,
    cohort_size=4,
    bytes_down=1_000_000,
    bytes_up=1_000_000,
    draw=cohorts.sample,
  )
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


def close(what, found, wanted):
  error = np.abs(found - wanted).max()
  assert error <= 2e-5 * max(np.abs(wanted).max(), 1e-2), f'{what}: {error}'


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
  'name, weighting, clients_per_step',
  [
    ('scaffold_m', 'uniform', 2),
    ('ada_best', 'examples', 1),
  ],
)
def test_dropped_and_partial_clients_equal_the_formulas(name, weighting, clients_per_step):
  """Two at a time too: groups of clients of unequal limits."""
  mu = 0.2 if name == 'ada_best' else 1.0
  with engine.graph_context(clients_per_step=clients_per_step):
    run = small_problem.Run(build(name, weighting), small_problem.clients())
    compare(run, expected(name, weighting), mu)


def test_limits_beyond_all_steps_change_no_bit_and_nobody_changes_nothing():
  with engine.graph_context():
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


@pytest.fixture(scope='module')
def problem():
  """(A_k, b_k), float64."""
  return solutions.systems(tasks.load('least_squares', dtype='float64', rows=16).train)


def simulated(problem, chosen, cohort_size=K, seed=0):
  """The rounds of a population of the problem's clients."""
  return population.Simulation(
    chosen,
    [f'c{k}' for k in range(K)],
    [EVERY_STEP] * K,
    seed=seed,
    cohort_size=cohort_size,
    bytes_down=1_000_000,
    bytes_up=1_000_000,
    draw=cohorts.sample,
  )


def of_speeds(*seconds_per_step):
  profile = dict(zip([f'c{k}' for k in range(K)], seconds_per_step))
  return population.Speed(downlink=1.0, uplink=1.0, profiles={'seconds_per_step': profile})


def least_squares_run(name, problem):
  options = {'num_clients': K} if name == 'scaffold' else {}
  process = algorithms.build(
    name,
    least_squares.build_model(3, dtype='float64'),
    client_learning_rate=RATE,
    training=ClientTraining(batching=Batching(None, epochs=EVERY_STEP, step_limits=True)),
    client_weighting='uniform',
    **options,
  )
  return small_problem.Run(process, list(zip(*problem)))


def follow(run, simulation, rounds):
  for t in range(1, rounds + 1):
    plan = simulation.plan(t)
    run.round(plan.positions.tolist(), dict(zip(plan.positions, plan.steps)))
  return run


def test_partial_work_tilts_fed_avg_and_leaves_scaffold_at_the_solution(problem):
  """Slow clients take few steps: f_k then counts in proportion to K_k, roughly."""
  speed = of_speeds(1.0, 1.0, 2.0, 4.0, 8.0)
  partial = population.Population(speed=speed, round_deadline=10.0, stragglers='partial')
  simulation = simulated(problem, partial)
  assert sorted(simulation.plan(1).steps) == [1, 2, 4, 8, 8]
  x_ls = solutions.least_squares(*problem)
  tilted = solutions.tilted(*problem, [1.0] * K, [8, 8, 4, 2, 1], RATE)
  assert np.linalg.norm(tilted - x_ls) > 0.3
  with engine.graph_context():
    run = follow(least_squares_run('fed_avg', problem), simulation, 150)
    np.testing.assert_allclose(run.theta, tilted, atol=1e-6)
    unreliable = population.Population(
      speed=speed, round_deadline=10.0, stragglers='partial', dropout_rate=0.3
    )
    run = follow(least_squares_run('scaffold', problem), simulated(problem, unreliable), 300)
    np.testing.assert_allclose(run.theta, x_ls, atol=1e-5)


def _mean_share(others):
  """E[1 / (1 + number of others available)], of independent clients (Poisson-binomial)."""
  counts = functools.reduce(np.convolve, [[1 - p, p] for p in others], np.ones(1))
  return np.sum(counts / np.arange(1, len(counts) + 1))


def test_fed_avg_stops_where_participation_and_steps_tilt_the_objective(problem):
  """The mean of the iterates, of which the closed form is exact: rounds are independent draws."""
  p = [0.9, 0.7, 0.5, 0.3, 0.1]
  chosen = population.Population(
    population.Independent({f'c{k}': p[k] for k in range(K)}),
    of_speeds(1.0, 1.0, 2.0, 4.0, 8.0),
    round_deadline=10.0,
    stragglers='partial',
  )
  simulation, rounds = simulated(problem, chosen, cohort_size=2), 8000
  hessians = [m.T @ m for m in problem[0]]
  moments = [m.T @ v for m, v in zip(*problem)]
  x, iterates = np.zeros(len(moments[0])), []
  for t in range(1, rounds + 1):
    plan = simulation.plan(t)
    models = []
    for k, steps in zip(plan.positions, plan.steps):
      x_k = x
      for _ in range(steps):
        x_k = x_k - RATE * (hessians[k] @ x_k - moments[k])
      models.append(x_k)
    x = np.mean(models, 0) if models else x
    iterates.append(x)
  blocks = np.array(iterates[500:]).reshape(15, 500, -1).mean(1)
  error = blocks.std(0, ddof=1) / np.sqrt(len(blocks))
  weights = [own * _mean_share(np.delete(p, k)) for k, own in enumerate(p)]
  expected = solutions.tilted(*problem, weights, [8, 8, 4, 2, 1], RATE)
  assert (np.abs(blocks.mean(0) - expected) < 4 * error).all()
  # Neither half of the tilt alone explains it.
  for other in (
    solutions.tilted(*problem, [1.0] * K, [8, 8, 4, 2, 1], RATE),
    solutions.tilted(*problem, weights, [8] * K, RATE),
    solutions.least_squares(*problem),
  ):
    assert (np.abs(other - expected) > 8 * error).any()
