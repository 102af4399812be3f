"""Where algorithms end on federated least squares, by the closed forms.

Client k has the loss 1/2 ||A_k x - b_k||^2. `a` has the matrices A_k [m_k, n], `b` the vectors b_k.
"""

import functools

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from oracle.fixed_points import ada_best, gradient_descent, minimiser
from tests.helpers import populations, small_problem
from tff_adaptive import algorithms, engine, optimizers, population, schedules
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive_tasks import least_squares

RATE = 0.125  # Like all numbers here exact in float32, in which rates are kept.
K = 5


@pytest.fixture(autouse=True)
def _graph_context():
  with engine.graph_context():
    yield


@pytest.fixture(scope='module')
def problem():
  """(A_k, b_k) of the task, float64."""
  clients = tasks.load('least_squares', dtype='float64', rows=16).train
  loaded = [clients.load(c) for c in clients.client_ids]
  a = [np.asarray(data['x'], np.float64) for data in loaded]
  b = [np.asarray(data['y'], np.float64) for data in loaded]
  return a, b


def _run(name, problem, *, steps=5, repeats=None, drawn=False, limited=False, rate=RATE, **options):
  """Runs an algorithm with float64 weights, `steps` full steps a round.

  Clients have equal weights, unless `client_weighting` is given.

  With `repeats` client k has its rows repeats[k] times and takes as many steps, each with all of
  A_k. With `drawn` the number of steps is random with mean `steps`; `limited` permits fewer.
  """
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = K
  if repeats:
    batching = Batching(16, shuffle=False)
  else:
    batching = Batching(None, epochs=steps, step_limits=limited)
  if drawn:
    batching = Batching(None, local_steps=steps, random_local_steps=True)
  options.setdefault('client_weighting', 'uniform')
  data = [(np.tile(a, (r, 1)), np.tile(b, r)) for a, b, r in zip(*problem, repeats or [1] * K)]
  build = getattr(algorithms, f'build_{name}', functools.partial(algorithms.build_process, name))
  process = build(
    least_squares.build_model(3, dtype='float64'),
    client_learning_rate=rate,
    training=ClientTraining(batching=batching),
    **options,
  )
  return small_problem.Run(process, data)


def _settle(run, target, rounds, tolerance=1e-7, limits=None):
  """Runs all clients until the model is at the target, for at most so many rounds."""
  size = np.linalg.norm(target)
  for _ in range(rounds):
    if np.linalg.norm(run.round(range(K), limits).theta - target) < tolerance * size:
      break
  assert np.linalg.norm(run.theta - target) < tolerance * size
  if run.is_stateful and run.state.inference_weights:
    assert np.linalg.norm(run.theta_bar - target) < 10 * tolerance * size


UNEQUAL = {'repeats': [1, 9, 2, 5, 3]}  # Clients of 1 to 9 steps.


@pytest.mark.parametrize(
  'name, options, tolerance',
  [
    ('scaffold_m', {}, 1e-12),
    ('fed_dyn', {'mu': 0.5, **UNEQUAL}, 1e-7),
    ('scaffnew', {'drawn': True}, 1e-12),
  ],
)
@pytest.mark.sample(1)
def test_without_drift_the_least_squares_solution_is_reached(problem, name, options, tolerance):
  _settle(_run(name, problem, **options), minimiser(*problem), 600, tolerance)


@pytest.mark.exhaustive
def test_ada_best_stops_at_the_ridge_point(problem):
  """From two x_0; the point does not depend on the numbers of steps, which are unequal."""
  server = optimizers.build_sgdm(0.5)
  run = _run('ada_best', problem, mu=1.0, beta=0.75, server_optimizer=server, **UNEQUAL)
  x_ls = minimiser(*problem)
  start = run.process.initialize()
  for x_0, beta, rate in ((run.theta, 0.75, 0.5), (np.array([4.0, -2.0, 1.0, 0.0, 8.0]), 0.5, 1.0)):
    weights = start.global_model_weights
    weights = type(weights)((x_0,), ())
    run.state = start._replace(
      global_model_weights=weights,
      inference_weights=weights,
      correction={**start.correction, 'beta': np.float32(beta)},
      finalizer={**start.finalizer, 'learning_rate': np.float32(rate)},
    )
    run.client_states = {}
    x = ada_best(*problem, 1.0, beta, x_0, rate)
    assert np.linalg.norm(x - x_ls) > 0.02
    _settle(run, x, 600)


def test_fed_avg_drifts_and_partial_work_tilts_it_and_leaves_scaffold_at_the_solution(problem):
  """Slow clients take few steps: f_k then counts in proportion to K_k, roughly."""
  x_ls = minimiser(*problem)
  x_fgd = gradient_descent(*problem, [8] * K, RATE)
  tilted = gradient_descent(*problem, [8, 8, 4, 2, 1], RATE)
  assert min(np.linalg.norm(x - x_ls) for x in (x_fgd, tilted)) > 0.3
  for name, failing, wanted, atol in (
    ('fed_avg', 0.0, tilted, 1e-6),
    ('scaffold', 0.3, x_ls, 1e-5),
  ):
    slow_clients = population.Population(
      speed=populations.speed(1.0, 1.0, 2.0, 4.0, 8.0),
      round_deadline=10.0,
      stragglers='partial',
      dropout_rate=failing,
    )
    simulation = populations.simulation(slow_clients, [8] * K, K)
    assert failing or sorted(simulation.plan(1).steps) == [1, 2, 4, 8, 8]
    run = _run(name, problem, steps=8, limited=True)
    for t in range(1, 61):
      plan = simulation.plan(t)
      run.round(plan.positions.tolist(), dict(zip(plan.positions, plan.steps)))
    np.testing.assert_allclose(run.theta, wanted, atol=atol)
    if name == 'fed_avg':
      _settle(run, x_fgd, 300, limits=[8] * K)


def _unequal(problem):
  """The problem with 16, 8, 12, 14 and 10 rows a client, and p_k, the shares of the rows."""
  counts = np.array([16, 8, 12, 14, 10])
  a = [matrix[:count] for matrix, count in zip(problem[0], counts)]
  b = [vector[:count] for vector, count in zip(problem[1], counts)]
  return a, b, counts / counts.sum()


@pytest.mark.exhaustive
def test_weights_by_examples_move_the_fixed_point_of_fed_avg(problem):
  """A client counts by p_k = n_k / n: the point of equal weights is another one."""
  a, b, weights = _unequal(problem)
  weighted = gradient_descent(a, b, [8] * K, RATE, weights)
  equal = gradient_descent(a, b, [8] * K, RATE)
  assert np.linalg.norm(weighted - equal) > 0.05
  _settle(_run('fed_avg', (a, b), steps=8, client_weighting='examples'), weighted, 400)
  _settle(_run('fed_avg', (a, b), steps=8), equal, 400)


def _loss(a, b, weights, x):
  """sum_k p_k f_k(x)."""
  return sum(p * np.sum((m @ x - v) ** 2) / 2 for m, v, p in zip(a, b, weights))


def theorem_1(a, b, weights, *, steps, total_steps, x_0, gradient_norm):
  """The bound on f(x^T) - f* of Theorem 1 of Li et al. (ICLR 2020), for full gradients.

  Full gradients have no variance, so that B = 6 beta Gamma + 8 (E - 1)^2 G^2, with Gamma =
  f* - sum_k p_k f_k* and G >= ||gradient of f_k|| along the run. `steps` are E, the local steps of
  a round, `total_steps` T, those so far.
  """
  hessians = [m.T @ m for m in a]
  moments = [m.T @ v for m, v in zip(a, b)]
  curvatures = np.concatenate([np.linalg.eigvalsh(hessian) for hessian in hessians])
  alpha = curvatures.min()
  kappa = curvatures.max() / alpha
  gamma = max(8 * kappa, steps)
  solution = np.linalg.solve(np.tensordot(weights, hessians, 1), np.tensordot(weights, moments, 1))
  least = 0.0  # sum_k p_k f_k*.
  for m, v, weight in zip(a, b, weights):
    least += _loss([m], [v], [weight], np.linalg.lstsq(m, v, rcond=None)[0])
  heterogeneity = _loss(a, b, weights, solution) - least
  noise = 6 * curvatures.max() * heterogeneity + 8 * (steps - 1) ** 2 * gradient_norm**2
  start = alpha * gamma / 2 * np.sum((x_0 - solution) ** 2)
  return kappa / (gamma + total_steps - 1) * (2 * noise / alpha + start)


def test_theorem_1_by_hand():
  """f_1 = (x - 1)^2 / 2 with p = 0.8 and f_2 = 2 x^2 with p = 0.2: x* = 1/2."""
  a = [np.array([[1.0]]), np.array([[2.0]])]
  b = [np.array([1.0]), np.array([0.0])]
  bound = theorem_1(
    a,
    b,
    [0.8, 0.2],
    steps=3,
    total_steps=np.array([1, 33]),
    x_0=np.array([1.5]),
    gradient_norm=5.0,
  )
  # Gamma = 0.8 / 8 + 0.2 / 2 = 0.2, kappa = 4, gamma = 32: B = 24 / 5 + 8 * 4 * 25 = 804.8, and
  # kappa / gamma (2 B + gamma / 2) at first.
  np.testing.assert_allclose(bound, [203.2, 101.6])


@pytest.mark.parametrize('steps', [1, 4])
@pytest.mark.sample(1)
def test_theorem_1_bounds_a_run_with_its_rate_and_unequal_weights(problem, steps):
  """f(x^T) - f* stays below the bound, and below where a constant rate would stop.

  The rate falls by round here and by step in the theorem: with one step a round they are the same.
  """
  a, b, weights = _unequal(problem)
  curvatures = np.concatenate([np.linalg.eigvalsh(m.T @ m) for m in a])
  kappa = curvatures.max() / curvatures.min()
  first_rate = 2 / (curvatures.min() * max(8 * kappa, steps))
  schedule = schedules.Diminishing(first_rate, kappa=kappa, local_steps=steps)
  run = _run('fed_avg', (a, b), steps=steps, rate=schedule, client_weighting='examples')
  x_0 = run.theta
  solution = gradient_descent(a, b, [1] * K, RATE, weights)
  least = _loss(a, b, weights, solution)
  gaps = []
  gradient_norm = 0.0
  for t in range(60):
    mean = 0.0
    for m, v, weight in zip(a, b, weights):
      x = run.theta
      for _ in range(steps):
        gradient = m.T @ (m @ x - v)
        gradient_norm = max(gradient_norm, np.linalg.norm(gradient))
        x = x - schedule(t) * gradient
      mean = mean + weight * x
    run.round(range(K))
    # Rates are float32 values; a weight may be near 0.
    np.testing.assert_allclose(run.theta, mean, rtol=1e-6, atol=1e-7)
    gaps.append(_loss(a, b, weights, run.theta) - least)
  bound = theorem_1(
    a,
    b,
    weights,
    steps=steps,
    total_steps=steps * np.arange(1, len(gaps) + 1),
    x_0=x_0,
    gradient_norm=gradient_norm,
  )
  assert (np.array(gaps) <= bound).all()
  if steps > 1:
    constant = gradient_descent(a, b, [steps] * K, schedule(0), weights)
    assert gaps[-1] < _loss(a, b, weights, constant) - least


def test_fed_prox_stops_at_its_point(problem):
  pulled = gradient_descent(*problem, [8] * K, RATE, mu=2.0)
  assert np.linalg.norm(pulled - gradient_descent(*problem, [8] * K, RATE)) > 0.05
  _settle(_run('fed_prox', problem, steps=8, mu=2.0), pulled, 300)
