"""Where each algorithm ends up on federated least squares, against the closed forms."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import small_problem
from tff_adaptive import algorithms, engine, optimizers
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive_tasks import least_squares, least_squares_solutions

RATE = 0.125  # Like all numbers here exact in float32, in which rates are kept.
K = 5


@pytest.fixture(autouse=True)
def _graph_context():
  with engine.graph_context():
    yield


@pytest.fixture(scope='module')
def problem():
  """(A_k, b_k) of the task, float64."""
  return least_squares_solutions.systems(
    tasks.load('least_squares', dtype='float64', rows=16).train
  )


def _run(name, problem, *, steps=5, rate=RATE, repeats=None, **options):
  """A run of an algorithm with float64 weights, all clients weighted alike.

  Each client takes `steps` full-gradient steps a round. With `repeats` client k has its rows
  repeats[k] times over and takes that many steps instead: each batch is the whole of A_k.
  """
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = K
  batching = Batching(None, epochs=steps)
  if repeats is not None:
    batching = Batching(16, shuffle=False)
  data = [(np.tile(a, (r, 1)), np.tile(b, r)) for a, b, r in zip(*problem, repeats or [1] * K)]
  process = algorithms.build(
    name,
    least_squares.build_model(3, dtype='float64'),
    client_learning_rate=rate,
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
  if run.is_stateful:
    assert np.linalg.norm(run.theta_bar - target) < 10 * tolerance * size


def test_fed_avg_drifts_to_equation_6(problem):
  x_fgd = least_squares_solutions.gradient_descent(*problem, steps=8, rate=RATE)
  assert np.linalg.norm(x_fgd - least_squares_solutions.least_squares(*problem)) > 0.3
  _settle(_run('fed_avg', problem, steps=8), x_fgd, 300)


def test_fed_prox_drifts_less_far(problem):
  x_ls = least_squares_solutions.least_squares(*problem)
  x_fgd, x = (least_squares_solutions.gradient_descent(*problem, 8, RATE, mu) for mu in (0, 3.5))
  assert np.linalg.norm(x - x_ls) < 0.7 * np.linalg.norm(x_fgd - x_ls)
  _settle(_run('fed_prox', problem, steps=8, mu=3.5), x, 400)


@pytest.mark.parametrize(
  'name, options',
  [('scaffold', {'scaffold_option': 1}), ('scaffold_m', {}), ('fed_dyn', {'mu': 0.5})],
)
def test_without_drift_the_least_squares_solution_is_reached(problem, name, options):
  x_ls = least_squares_solutions.least_squares(*problem)
  _settle(_run(name, problem, **options), x_ls, 500, tolerance=1e-12)


@pytest.mark.parametrize('mu, beta, server_rate', [(1.0, 0.75, 1.0), (2.0, 0.5, 0.5)])
def test_ada_best_stops_at_the_ridge_point(problem, mu, beta, server_rate):
  """From two x_0; the point depends on neither the rate nor the number of steps."""
  options = {'mu': mu, 'beta': beta}
  if server_rate != 1:
    options['server_optimizer'] = optimizers.build_sgdm(server_rate)
  run = _run('ada_best', problem, steps=3 if mu == 2 else 6, **options)
  x_ls = least_squares_solutions.least_squares(*problem)
  start = run.process.initialize()
  for x_0 in (run.theta, np.array([4.0, -2.0, 1.0, 0.0, 8.0])):
    weights = start.global_model_weights
    weights = type(weights)((x_0,), ())
    run.state = start._replace(global_model_weights=weights, inference_weights=weights)
    run.client_states = {}
    x = least_squares_solutions.ada_best(*problem, mu, beta, x_0, server_rate)
    assert np.linalg.norm(x - x_ls) > 0.02
    _settle(run, x, 400)


@pytest.mark.parametrize(
  'name, options',
  [('scaffold', {}), ('fed_dyn', {'mu': 0.5}), ('ada_best', {'mu': 1.0, 'beta': 0.75})],
)
def test_unequal_numbers_of_steps(problem, name, options):
  """Clients of 1 to 9 steps end up where equal numbers lead them."""
  run = _run(name, problem, repeats=[1, 9, 2, 5, 3], **options)
  target = least_squares_solutions.least_squares(*problem)
  if name == 'ada_best':
    target = least_squares_solutions.ada_best(*problem, 1.0, 0.75, run.theta)
  _settle(run, target, 600)


def test_a_server_optimizer_does_not_move_the_fixed_point(problem):
  """Yogi rests where the mean of the updates is 0: at FedAvg's point."""
  x_fgd = least_squares_solutions.gradient_descent(*problem, 5, RATE)
  _settle(_run('fed_yogi', problem, server_learning_rate=0.125, tau=0.125), x_fgd, 1000)


def test_the_solution_by_hand():
  """f_1 = (x - 1)^2 / 2 and f_2 = 2 x^2: x* = 1/5."""
  a, b = [np.array([[1.0]]), np.array([[2.0]])], [np.array([1.0]), np.array([0.0])]
  np.testing.assert_allclose(least_squares_solutions.least_squares(a, b), [0.2])
