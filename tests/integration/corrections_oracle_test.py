"""Perceptrons, and what is said of the rounds, against the oracle; vectors_test has all methods."""

import numpy as np
import pytest

import oracle
from oracle import methods
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, optimizers, schedules
from tff_adaptive.client import Batching, ClientTraining

N = small_problem.NUM_CLIENTS
# Three of seven unequal clients take part in a round, and are away for one round, two and more.
COHORTS = small_problem.cohorts(10)

# The algorithm, its class in the oracle, what both have, and what one of them has.
CASES = {
  'fed_dyn': (
    oracle.FedDyn,
    {'mu': 0.2, 'mean_examples': 8.0},
    # Of each epoch the examples.
    {'num_clients': N, 'client_weighting': lambda metrics: metrics['loss'][..., 1]},
    {'by_examples': True},
  ),
  'ada_best': (
    oracle.AdaBest,
    {'mu': 0.2, 'beta': 0.8, 'beta_decay': 0.5, 'plateau_rounds': 2},
    {'client_weighting': 'examples'},
    {'by_examples': True},
  ),
  # n-bar is the mean of n_i over the cohorts of all earlier rounds, whatever the updates' weights.
  'ada_best, scaled mu': (
    oracle.UnbalancedAdaBest,
    {'mu': 0.2, 'beta': 0.8},
    {'client_weighting': 'examples', 'scale_mu': True},
    {'by_examples': True},
  ),
}


def close(what, actual, wanted):
  """Compares relative to the largest entry; float32 rounds at 6e-8, and h_i is a difference."""
  error = np.abs(actual - wanted).max()
  assert error <= 2e-5 * max(np.abs(wanted).max(), 1e-2), f'{what}: {error}'


def _pair(name, limited):
  """The run and the oracle of a case."""
  kind, options, of_process, of_oracle = CASES[name]
  adam = optimizers.build_adam(0.1, tau=0.01), oracle.Adaptive('adam', 0.1, 0.9, 0.99, 0.01)
  algorithm = name.split(',')[0]
  if algorithm == 'ada_best':
    server = None
    oracle_server = oracle.Sgd(1.0)
  else:
    server, oracle_server = adam
  batching = Batching(4, epochs=2, shuffle=False, step_limits=limited)
  process = getattr(algorithms, f'build_{algorithm}')(
    small_problem.model(),
    server_optimizer=server,
    client_learning_rate=schedules.RoundDecay(0.2, factor=0.9),
    training=ClientTraining(batching=batching),
    more_parts=[corrections.Clip(0.3), corrections.WeightDecay(0.05)],
    **{'client_weighting': 'uniform', **options, **of_process},
  )
  training = dict(eta_l=lambda t: 0.2 * 0.9**t, batch_size=4, epochs=2, clip=0.3, weight_decay=0.05)
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  expected = kind(theta, clients, server=oracle_server, **training, **options, **of_oracle)
  return small_problem.Run(process, small_problem.clients()), expected


def _check_metrics(run, expected, h, g_bar, new, mu_in_h_i):
  """Checks what is said of a round: norms of the g_i and of h and h_i, their spread, an angle."""
  norms = [np.linalg.norm(g_i) for g_i in expected.last_g.values()]
  weights = [small_problem.NUM_EXAMPLES[i] if expected.by_examples else 1 for i in expected.last_g]
  h_i = [np.linalg.norm(expected.h_i[i]) / mu_in_h_i[i] for i in expected.last_g]
  # Of deviations the mean squares: what is left of those by subtraction has lost digits.
  wanted = {
    'update_norm_mean': np.mean(norms),
    'update_norm_std': np.sqrt(np.mean(np.square(norms))),
    'non_finite_clients': 0,
    'update_spread': np.sqrt(np.average(np.square(norms), weights=weights)),
    'aggregate_norm': np.linalg.norm(g_bar),
    'theta_norm': np.linalg.norm(expected.theta),
    'h_norm': np.linalg.norm(expected.h),
    'h_cosine': h @ g_bar / max(np.linalg.norm(h) * np.linalg.norm(g_bar), 1e-30),
    'h_i_norm_mean': np.mean(h_i),
    'first_time_clients': new,
  }
  metrics = {name: float(v) for name, v in run.metrics['client_work']['updates'].items()}
  metrics['update_norm_std'] = np.hypot(metrics['update_norm_std'], metrics['update_norm_mean'])
  metrics['update_spread'] = np.hypot(metrics['update_spread'], metrics['aggregate_norm'])
  assert metrics == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize('name', CASES)
@pytest.mark.sample(1)
def test_ten_rounds_equal_the_formulas(name):
  rng = np.random.default_rng(2)
  seen = set()
  limited = name == 'ada_best'
  with engine.graph_context(clients_per_step=1 if limited else 3):
    run, expected = _pair(name, limited)
    # What the oracle, as the paper prints it, multiplies into h_i, and the project does not.
    mu = np.broadcast_to(getattr(expected, 'mu', 1.0), [N])
    for cohort in COHORTS:
      limits = None
      if limited:  # Up to three come, or nobody, and some do a part of their steps.
        cohort = cohort[: rng.integers(4)]
        most = [small_problem.NUM_EXAMPLES[i] // 2 for i in cohort]
        limits = {i: int(rng.integers(1, 2 + k)) for i, k in zip(cohort, most)}
      before = expected.theta
      h = expected.h
      new = len(set(cohort) - seen)
      seen |= {*cohort}
      run.round(cohort, limits)
      expected.round(cohort, limits)
      if cohort:
        _check_metrics(run, expected, h, before - expected.theta_bar, new, mu)
  close('theta', run.theta, expected.theta)
  close('theta_bar', run.theta_bar, expected.theta_bar)
  close('h', run.h, expected.h)
  for i in range(N):
    close(f'h_{i}', mu[i] * run.h_i(i), expected.h_i[i])
  if name == 'ada_best':
    assert expected.beta < 0.8  # The plateau was met.
    assert float(run.state.correction[0]['beta']) == pytest.approx(expected.beta)


def test_fed_speed_is_fed_dyn_with_perturbed_gradients():
  """Algorithm 1 of FedSpeed with lambda = 1 / mu; both are the oracle's."""
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  how = dict(eta_l=lambda t: 0.2, batch_size=4, sam_rho=0.3)
  fed_speed = methods.FedSpeed(theta, clients, server=oracle.Sgd(1.0), lam=4.0, **how)
  fed_dyn = oracle.FedDyn(theta, clients, server=oracle.Sgd(1.0), mu=0.25, **how)
  for _ in range(4):
    fed_speed.round(range(N))
    fed_dyn.round(range(N))
    np.testing.assert_allclose(fed_speed.theta, fed_dyn.theta, rtol=1e-9)
