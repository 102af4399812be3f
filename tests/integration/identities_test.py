"""Identities between the algorithms, and the remarks of "AdaBest" on its own formulas."""

import numpy as np
import pytest

from tests.helpers import oracle, small_problem
from tff_adaptive import engine, schedules
from tff_adaptive.client import Batching

N = small_problem.NUM_CLIENTS
COHORTS = small_problem.cohorts(4)
EVERYONE = list(range(N))


@pytest.fixture(autouse=True)
def _graph_context():
  with engine.graph_context():
    yield


def _run(name, **options):
  """A run of an algorithm with shuffled batches, weight decay and clients weighted alike."""
  process = small_problem.process(
    name,
    schedules.RoundDecay(0.2, factor=0.9),
    client_weighting='uniform',
    batching=Batching(4, epochs=2),
    weight_decay=0.01,
    **options,
  )
  return small_problem.Run(process, small_problem.clients())


@pytest.fixture(scope='module')
def fed_avg():
  """theta after each of the rounds of FedAvg with uniform weights."""
  with engine.graph_context():
    run = _run('fed_avg')
    return [run.round(cohort).theta for cohort in COHORTS]


def _same_bits(a, b):
  return np.array_equal(a, b) and not np.isnan(a).any()


@pytest.mark.parametrize(
  'name, options', [('ada_best', {'mu': 0, 'beta': 0}), ('fed_prox', {'mu': 0})]
)
def test_without_its_weights_a_correction_is_fed_avg(fed_avg, name, options):
  """Remark 4 of AdaBest, and FedProx's penalty; bit for bit."""
  run = _run(name, **options)
  for cohort, theta in zip(COHORTS, fed_avg):
    assert _same_bits(run.round(cohort).theta, theta)


def test_clients_of_fed_dyn_without_mu_are_those_of_fed_avg(fed_avg):
  """The mean of its clients' models is FedAvg's; its server adds h, which mu does not touch."""
  fed_dyn = _run('fed_dyn', mu=0).round(COHORTS[0])
  assert _same_bits(fed_dyn.theta_bar, fed_avg[0])
  assert not np.allclose(fed_dyn.theta, fed_avg[0], atol=1e-3)
  # In the second round too, once FedAvg starts from where FedDyn's server went.
  plain = _run('fed_avg').round(COHORTS[0])
  plain.state = plain.process.set_model_weights(plain.state, fed_dyn.state.global_model_weights)
  assert _same_bits(fed_dyn.round(COHORTS[1]).theta_bar, plain.round(COHORTS[1]).theta)


def test_ada_best_with_beta_one_is_fed_dyn_under_full_participation():
  """Remark 5, where |S| / N = 1; mu = 0 because the clients of the two are unlike."""
  ada_best, fed_dyn = _run('ada_best', mu=0, beta=1), _run('fed_dyn', mu=0)
  for _ in range(3):
    ada_best.round(EVERYONE)
    fed_dyn.round(EVERYONE)
    assert _same_bits(ada_best.theta, fed_dyn.theta)
    assert _same_bits(ada_best.h, fed_dyn.h)
  ada_best.round(EVERYONE[:3])
  fed_dyn.round(EVERYONE[:3])
  assert not np.allclose(ada_best.theta, fed_dyn.theta, atol=1e-3)


def test_remarks_2_and_3_of_ada_best():
  beta, run = 0.7, _run('ada_best', mu=0.3, beta=0.7)
  thetas, bars, hs = [run.theta], [run.theta_bar], [run.h]
  for cohort in small_problem.cohorts(7):
    run.round(cohort)
    thetas.append(run.theta)
    bars.append(run.theta_bar)
    hs.append(run.h)
  g_bar = {t: thetas[t - 1] - bars[t] for t in range(1, 8)}
  for t in range(1, 8):
    assert np.abs(hs[t]).max() > 1e-3
    # Equation (1), equation (2) and Remark 2.
    np.testing.assert_allclose(thetas[t], bars[t] - hs[t], atol=1e-6)
    np.testing.assert_allclose(hs[t], beta * (bars[t - 1] - bars[t]), atol=1e-6)
    np.testing.assert_allclose(bars[t - 1] - bars[t], hs[t - 1] + g_bar[t], atol=1e-6)
    # Remark 3 with the appendix's exponent.
    series = sum(beta ** (t - k + 1) * g_bar[k] for k in range(1, t + 1))
    np.testing.assert_allclose(hs[t], series, atol=1e-6)


def test_scaffold_and_scaffold_m_agree_at_any_participation():
  """And h stays the mean of all N clients' h_i, those that never took part among them."""
  both = [_run(name) for name in ('scaffold', 'scaffold_m')]
  for cohort in ([0, 1, 2], [4], EVERYONE, [6, 2], [5, 1, 3, 0]):
    for run in both:
      run.round(cohort)
    np.testing.assert_allclose(both[0].theta, both[1].theta, atol=2e-6)
    for run in both:
      mean_h_i = np.mean([run.h_i(i) for i in range(N)], 0)
      np.testing.assert_allclose(run.h, mean_h_i, atol=2e-6)
  np.testing.assert_allclose(both[0].h_i(2), both[1].h_i(2), atol=5e-6)
  assert np.abs(both[0].h).max() > 1e-2


def test_one_whole_step_is_a_step_on_the_pooled_examples():
  """FedSGD: one full-batch step, weights n_i and server rate 1 are a centralised SGD step."""
  data = small_problem.clients()
  process = small_problem.process('fed_avg', 0.3, batching=Batching(None))
  run = small_problem.Run(process, data)
  x, y = (np.concatenate(arrays) for arrays in zip(*data))
  theta = small_problem.theta_0().astype(np.float64)
  for _ in range(4):
    theta = theta - 0.3 * oracle.gradient(theta, x, y)
    np.testing.assert_allclose(run.round(EVERYONE).theta, theta, atol=2e-6)
