"""Where algorithms end on federated least squares, by the closed forms.

Client k has the loss 1/2 ||A_k x - b_k||^2. `a` has the matrices A_k [m_k, n], `b` the vectors b_k.
"""

import functools

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import populations, small_problem
from tff_adaptive import algorithms, engine, optimizers, population
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive_tasks import least_squares

RATE = 0.125  # Like all numbers here exact in float32, in which rates are kept.
K = 5


def minimiser(a, b):
  """The minimiser of the mean loss."""
  return ada_best(a, b, 0.0, 0.0, 0.0)


def gradient_descent(a, b, steps, rate):
  """Where averaging the models after K_k full-gradient steps of a rate stops, as in FedAvg.

  It solves sum_k M_k (A_k'A_k x - A_k'b_k) = 0, M_k = sum_{e < K_k} (I - s A_k'A_k)^e, which
  docs/design/population.md derives for all q_k = 1. `steps` are the K_k.
  """
  left = 0.0
  right = 0.0
  for m, v, count in zip(a, b, steps):
    hessian = m.T @ m
    step = np.eye(len(hessian)) - rate * hessian
    moves = sum(np.linalg.matrix_power(step, e) for e in range(count))
    left = left + moves @ hessian
    right = right + moves @ m.T @ v
  return np.linalg.solve(left, right)


def ada_best(a, b, mu, beta, x_0, server_rate=1.0):
  """Where AdaBest stops under full participation: docs/ada_best_fixed_point.md derives it.

  The minimiser of f(x) + w/2 ||x - x_0||^2 with w = mu (1 - beta) / eta, f the mean loss.
  """
  hessian = np.mean([m.T @ m for m in a], 0)
  moment = np.mean([m.T @ v for m, v in zip(a, b)], 0)
  weight = mu * (1 - beta) / server_rate
  return np.linalg.solve(hessian + weight * np.eye(len(hessian)), moment + weight * x_0)


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


def _run(name, problem, *, steps=5, repeats=None, drawn=False, limited=False, **options):
  """Runs an algorithm with float64 weights and equal client weights, `steps` full steps a round.

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
  data = [(np.tile(a, (r, 1)), np.tile(b, r)) for a, b, r in zip(*problem, repeats or [1] * K)]
  build = getattr(algorithms, f'build_{name}', functools.partial(algorithms.build_process, name))
  process = build(
    least_squares.build_model(3, dtype='float64'),
    client_learning_rate=RATE,
    training=ClientTraining(batching=batching),
    client_weighting='uniform',
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
def test_without_drift_the_least_squares_solution_is_reached(problem, name, options, tolerance):
  _settle(_run(name, problem, **options), minimiser(*problem), 600, tolerance)


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
