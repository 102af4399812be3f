"""Where each algorithm ends up on federated least squares, against the closed forms."""

import functools

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import least_squares_solutions as solutions, small_problem
from tff_adaptive import algorithms, engine, optimizers
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
  return solutions.systems(tasks.load('least_squares', dtype='float64', rows=16).train)


def _run(name, problem, *, steps=5, repeats=None, drawn=False, **options):
  """A run of an algorithm with float64 weights, all clients weighted alike.

  Each client takes `steps` full-gradient steps a round. With `repeats` client k has its rows
  repeats[k] times over and takes that many steps instead: each batch is the whole of A_k. With
  `drawn` the number of steps is drawn, the same for all clients, and `steps` is its mean.
  """
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = K
  batching = Batching(16, shuffle=False) if repeats else Batching(None, epochs=steps)
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


def _settle(run, target, rounds, tolerance=1e-7):
  """Runs all clients until the model is at the target, for at most so many rounds."""
  size = np.linalg.norm(target)
  for _ in range(rounds):
    if np.linalg.norm(run.round(range(K)).theta - target) < tolerance * size:
      break
  assert np.linalg.norm(run.theta - target) < tolerance * size
  if run.is_stateful and run.state.inference_weights:
    assert np.linalg.norm(run.theta_bar - target) < 10 * tolerance * size


def test_fed_avg_drifts_to_equation_6_and_fed_prox_less_far(problem):
  x_ls = solutions.least_squares(*problem)
  x_fgd, x = (solutions.gradient_descent(*problem, 8, RATE, mu) for mu in (0, 3.5))
  assert np.linalg.norm(x_fgd - x_ls) > 0.3
  assert np.linalg.norm(x - x_ls) < 0.7 * np.linalg.norm(x_fgd - x_ls)
  _settle(_run('fed_avg', problem, steps=8), x_fgd, 300)
  _settle(_run('fed_prox', problem, steps=8, mu=3.5), x, 400)


UNEQUAL = {'repeats': [1, 9, 2, 5, 3]}  # Clients of 1 to 9 steps.


@pytest.mark.parametrize(
  'name, options, tolerance',
  [
    ('scaffold', {'scaffold_option': 1}, 1e-12),
    ('scaffold', UNEQUAL, 1e-7),
    ('scaffold_m', {}, 1e-12),
    ('fed_dyn', {'mu': 0.5}, 1e-12),
    ('fed_dyn', {'mu': 0.5, **UNEQUAL}, 1e-7),
    ('scaffnew', {}, 1e-12),
    ('scaffnew', {'drawn': True}, 1e-12),
  ],
)
def test_without_drift_the_least_squares_solution_is_reached(problem, name, options, tolerance):
  x_ls = solutions.least_squares(*problem)
  _settle(_run(name, problem, **options), x_ls, 600, tolerance)


@pytest.mark.parametrize(
  'mu, beta, server_rate, options', [(1.0, 0.75, 1.0, UNEQUAL), (2.0, 0.5, 0.5, {'steps': 3})]
)
def test_ada_best_stops_at_the_ridge_point(problem, mu, beta, server_rate, options):
  """From two x_0; the point depends on neither the rate nor the number of steps."""
  if server_rate != 1:
    options = {**options, 'server_optimizer': optimizers.build_sgdm(server_rate)}
  run = _run('ada_best', problem, mu=mu, beta=beta, **options)
  x_ls = solutions.least_squares(*problem)
  start = run.process.initialize()
  for x_0 in (run.theta, np.array([4.0, -2.0, 1.0, 0.0, 8.0])):
    weights = start.global_model_weights
    weights = type(weights)((x_0,), ())
    run.state = start._replace(global_model_weights=weights, inference_weights=weights)
    run.client_states = {}
    x = solutions.ada_best(*problem, mu, beta, x_0, server_rate)
    assert np.linalg.norm(x - x_ls) > 0.02
    _settle(run, x, 600)


def test_a_server_optimizer_does_not_move_the_fixed_point(problem):
  """Yogi rests where the mean of the updates is 0: at FedAvg's point."""
  x_fgd = solutions.gradient_descent(*problem, 5, RATE)
  _settle(_run('fed_yogi', problem, server_learning_rate=0.125, tau=0.125), x_fgd, 1000)
