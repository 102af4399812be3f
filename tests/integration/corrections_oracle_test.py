"""Ten rounds of each algorithm against the NumPy oracle, three of seven unequal clients a round."""

import types
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pytest

from tests.helpers import oracle, small_problem
from tff_adaptive import algorithms, corrections, engine as engine_lib, optimizers, schedules
from tff_adaptive.client import Batching, ClientTraining

ROUNDS = 10
N = small_problem.NUM_CLIENTS

# The server optimizers, this project's and the oracle's.
SERVERS = {
  'sgd': lambda: (optimizers.build_sgdm(1.0), oracle.Sgd(1.0)),
  'sgdm': lambda: (optimizers.build_sgdm(0.5, 0.9), oracle.Sgd(0.5, 0.9)),
  'adagrad': lambda: (
    optimizers.build_adagrad(0.1, tau=0.01),
    oracle.Adaptive('adagrad', 0.1, 0.0, None, 0.01),
  ),
  'adam': lambda: (
    optimizers.build_adam(0.1, tau=0.01),
    oracle.Adaptive('adam', 0.1, 0.9, 0.99, 0.01),
  ),
  'yogi': lambda: (
    optimizers.build_yogi(0.1, beta1=0.8, beta2=0.95, tau=0.01),
    oracle.Adaptive('yogi', 0.1, 0.8, 0.95, 0.01),
  ),
}

SMALL = dict(batch_size=4, epochs=2)  # K_i from 2 to 8, most last batches of an epoch smaller.
WHOLE = dict(batch_size=None, epochs=3)
CLIP = dict(clip_norm=0.3)
DECAY = dict(weight_decay=0.05)
FADING = dict(fading=0.9)
EXAMPLES = dict(client_weighting='examples')
COUNTED = dict(client_weighting=lambda metrics: metrics['loss'][..., 1])  # In each epoch.

ORACLES = {
  'fed_avg': oracle.FedAvg,
  'fed_prox': oracle.FedProx,
  'scaffold': oracle.Scaffold,
  'scaffold_m': oracle.ScaffoldM,
  'fed_dyn': oracle.FedDyn,
  'ada_best': oracle.AdaBest,
}


class Case(NamedTuple):
  """An algorithm with its options, a server optimizer and how clients train."""

  name: str
  server: str
  training: dict
  options: Mapping = types.MappingProxyType({})
  by_series: bool = False  # AdaBest's h in the oracle: by Remark 3, not by equation (2).

  def __str__(self):
    return '-'.join([self.name, self.server, *(f'{k}={v}' for k, v in self.options.items())])


CASES = [
  Case('fed_avg', 'adagrad', {**SMALL, **FADING, **DECAY, **EXAMPLES}),
  Case('fed_prox', 'adam', {**WHOLE, **CLIP}, {'mu': 0.5}),
  Case('scaffold', 'yogi', {**WHOLE, **CLIP}, {'scaffold_option': 1}),
  Case('scaffold', 'sgdm', {**SMALL, **CLIP, **EXAMPLES}, {'scaffold_option': 2}),
  Case('scaffold_m', 'adagrad', {**SMALL, **DECAY, **EXAMPLES}),
  Case('fed_dyn', 'sgd', {**SMALL, **CLIP, **DECAY, **FADING}, {'mu': 0.2}),
  Case('fed_dyn', 'adam', {**SMALL, **COUNTED}, {'mu': 0.2, 'mean_examples': 8.0}),
  Case(
    'ada_best',
    'sgd',
    SMALL,
    {'mu': 0.2, 'beta': 0.8, 'beta_decay': 0.5, 'plateau_rounds': 1},
  ),
  Case(
    'ada_best',
    'sgdm',
    {**SMALL, **EXAMPLES},
    {'mu': 0.2, 'beta': 0.6, 'scale_mu': True},
    by_series=True,
  ),
]


def _build(case):
  """The process and the oracle of a case, ready to run."""
  training = {'client_weighting': 'uniform', **case.training}
  factor = training.pop('fading', 1.0)
  batching = Batching(training.pop('batch_size'), epochs=training.pop('epochs'), shuffle=False)
  process_server, oracle_server = SERVERS[case.server]()
  weighting = training.pop('client_weighting')
  options = dict(
    client_learning_rate=schedules.RoundDecay(0.2, factor=factor),
    training=ClientTraining(batching=batching, **training),
    client_weighting=weighting,
  )
  model = small_problem.model()
  if case.name == 'fed_avg':
    process = algorithms.build_drift_corrected(
      model, corrections.Correction(), process_server, **options
    )
  else:
    if case.name in ('scaffold', 'scaffold_m', 'fed_dyn'):
      options['num_clients'] = N
    options.update(server_optimizer=process_server, **case.options)
    process = getattr(algorithms, f'build_{case.name}')(model, **options)
  oracle_class, oracle_options = ORACLES[case.name], dict(case.options)
  if oracle_options.pop('scale_mu', False):
    oracle_class = oracle.UnbalancedAdaBest
  if case.by_series:
    oracle_options['by_series'] = True
  expected = oracle_class(
    small_problem.theta_0(),
    small_problem.clients(),
    server=oracle_server,
    eta_l=lambda t: 0.2 * factor**t,
    batch_size=batching.batch_size,
    epochs=batching.epochs,
    clip=training.get('clip_norm'),
    weight_decay=training.get('weight_decay', 0.0),
    by_examples=weighting != 'uniform',
    **oracle_options,
  )
  return small_problem.Run(process, small_problem.clients()), expected


def _mu_in_h_i(case, i):
  """What the oracle, as the paper prints it, multiplies into h_i, and the project does not."""
  mu = case.options.get('mu', 1.0)
  if 'mean_examples' in case.options:
    mu *= case.options['mean_examples'] / small_problem.NUM_EXAMPLES[i]
  return 1.0 if case.options.get('scale_mu') else mu


def close(what, found, wanted):
  """Compares relative to the largest entry; float32 rounds at 6e-8, and h_i is a difference."""
  error = np.abs(found - wanted).max()
  assert error <= 2e-5 * max(np.abs(wanted).max(), 1e-2), f'{what}: {error}'


def _check_metrics(case, run, expected, h, g_bar, new):
  """Checks what is said of a round: norms of the g_i and of h and h_i, their spread, an angle."""
  norms = [np.linalg.norm(g_i) for g_i in expected.last_g.values()]
  weights = [small_problem.NUM_EXAMPLES[i] if expected.by_examples else 1 for i in expected.last_g]
  mean_square = np.average(np.square(norms), weights=weights)
  # Of deviations the mean squares: what is left of those by subtraction has lost digits.
  wanted = {
    'update_norm_mean': np.mean(norms),
    'update_norm_std': np.sqrt(np.mean(np.square(norms))),
    'non_finite_clients': 0,
  }
  found = {name: float(v) for name, v in run.metrics['client_work']['updates'].items()}
  found['update_norm_std'] = np.hypot(found['update_norm_std'], found['update_norm_mean'])
  if run.is_stateful:
    h_i = [np.linalg.norm(expected.h_i[i]) / _mu_in_h_i(case, i) for i in expected.last_g]
    wanted |= {
      'update_spread': np.sqrt(mean_square),
      'aggregate_norm': np.linalg.norm(g_bar),
      'theta_norm': np.linalg.norm(expected.theta),
      'h_norm': np.linalg.norm(expected.h),
      'h_cosine': h @ g_bar / max(np.linalg.norm(h) * np.linalg.norm(g_bar), 1e-30),
      'h_i_norm_mean': np.mean(h_i),
      'first_time_clients': new,
    }
    found['update_spread'] = np.hypot(found['update_spread'], found['aggregate_norm'])
  assert found == pytest.approx(wanted, rel=1e-4)


def _compare(case, **engine):
  with engine_lib.graph_context(**engine):
    run, expected = _build(case)
    seen = set()
    for cohort in small_problem.cohorts(ROUNDS):
      new, before, h = set(cohort) - seen, expected.theta, expected.h
      seen |= new
      run.round(cohort)
      expected.round(cohort)
      _check_metrics(case, run, expected, h, before - expected.theta_bar, len(new))
  close('theta', run.theta, expected.theta)
  if run.is_stateful:
    close('theta_bar', run.theta_bar, expected.theta_bar)
    close('h', run.h, expected.h)
    if 'beta_decay' in case.options:
      assert expected.beta < case.options['beta']  # The plateau was met.
      assert float(run.state.correction['beta']) == pytest.approx(expected.beta)
    for i in range(N):
      close(f'h_{i}', _mu_in_h_i(case, i) * run.h_i(i), expected.h_i[i])


@pytest.mark.parametrize('case', CASES, ids=str)
def test_ten_rounds_equal_the_formulas(case):
  """The last one with two clients at a time, of unequal sizes, and the third alone."""
  _compare(case, clients_per_step=2 if case is CASES[-1] else 1)


def test_the_cohorts_leave_clients_away_for_unequal_times():
  """What the cases above need, so that AdaBest's 1 / (t - t'_i) and SCAFFOLD's N matter."""
  away = set()
  last = dict.fromkeys(range(N), 0)
  for t, cohort in enumerate(small_problem.cohorts(ROUNDS), 1):
    away |= {t - last[i] for i in cohort if last[i]}
    last.update(dict.fromkeys(cohort, t))
  assert {1, 2, 3} <= away
  assert all(last.values())


def test_the_oracle_has_the_gradient_of_its_loss():
  def loss(theta):
    w, a, v, c = oracle.unpack(theta)
    scores = np.tanh(x @ w + a) @ v + c
    return np.mean(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(y)), y])

  x, y = small_problem.clients()[1]
  x = x.astype(np.float64)
  theta = small_problem.theta_0().astype(np.float64)
  found = oracle.gradient(theta, x, y)
  for k in range(theta.size):
    e = 1e-5 * np.eye(theta.size)[k]
    assert found[k] == pytest.approx((loss(theta + e) - loss(theta - e)) / 2e-5, abs=1e-8)
