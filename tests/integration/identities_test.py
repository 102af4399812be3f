"""Identities between the algorithms; remarks 1 to 3 of "AdaBest" are in its oracle."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import correction_inputs as inputs, oracle, small_problem
from tff_adaptive import corrections, schedules
from tff_adaptive.client import Batching

N = small_problem.NUM_CLIENTS
COHORTS = small_problem.cohorts(4)
EVERYONE = list(range(N))
pytestmark = pytest.mark.xdist_group('identities')  # Each process is traced once.


@pytest.fixture(scope='module', autouse=True)
def _graph_context(graph):
  with tff.framework.get_context_stack().install(graph):
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
def fed_avg(_graph_context):
  """theta after each of the rounds of FedAvg with uniform weights."""
  run = _run('fed_avg')
  return [run.round(cohort).theta for cohort in COHORTS]


def _same_bits(a, b):
  return np.array_equal(a, b) and not np.isnan(a).any()


@pytest.mark.parametrize(
  'name, options',
  [
    ('ada_best', {'mu': 0, 'beta': 0}),
    ('fed_prox', {'mu': 0}),
    ('fed_avg', {'sam_rho': 0}),
    ('fed_avg', {'sam_rho': 1e-30}),  # A step that no weight notices.
  ],
)
def test_without_its_weights_a_correction_is_fed_avg(fed_avg, name, options):
  """Remark 4 of AdaBest, FedProx's penalty, and sharpness-aware steps; bit for bit."""
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


def test_fed_nova_with_equal_steps_and_fed_cm_without_memory_are_fed_avg():
  nova, cm, g = corrections.FedNova(), corrections.FedCM(1.0), inputs.weights(6)
  client = inputs.client_round(broadcast=inputs.weights(8))
  assert_close = inputs.assert_close
  assert_close(cm.gradient(client, inputs.weights(7), g), g)
  assert_close(cm.server_update((), inputs.server_round(g_bar=g))[1], g)
  client = client._replace(local_state=nova.local_state(client))
  for _ in range(5):
    same, carried = nova.gradient(client, inputs.weights(7), g)
    assert_close(same, g)
    client = client._replace(local_state=carried)
  _, upload = nova.client_update(client, g, tf.constant(5.0))
  server = inputs.server_round(g_bar=nova.update(client, g, tf.constant(5.0)), uploads=upload)
  assert_close(nova.server_update((), server)[1], g)


def test_fed_exp_takes_no_longer_step_with_one_client():
  g, exp = inputs.weights(6), corrections.FedExP(0.0)
  _, upload = exp.client_update(inputs.client_round(), g, tf.constant(5.0))
  _, direction, factor = exp.server_update((), inputs.server_round(g_bar=g, uploads=upload))
  assert (direction, factor) == (g, 1)  # Of max(1, 1/2).


def test_di_loco_with_sgd_inside_and_plain_momentum_outside_is_fed_avgm():
  server = dict(server_learning_rate=0.7, momentum=0.9)
  kept, plain = (_run('fed_avgm', **server, **t) for t in ({'optimizer_state': 'keep'}, {}))
  assert kept.is_stateful
  for cohort in COHORTS:
    assert _same_bits(kept.round(cohort).theta, plain.round(cohort).theta)


def test_mime_without_memory_is_svrg():
  """theta - eta_l (g(theta) - g(x; the same batch) + c), two passes of three batches."""
  x, y = small_problem.clients()[1]
  start = theta = small_problem.theta_0().astype(np.float64)
  c = np.random.default_rng(3).normal(size=theta.size)
  for first in (0, 4, 8) * 2:
    batch = x[first : first + 4], y[first : first + 4]
    theta = theta - 0.2 * (oracle.gradient(theta, *batch) - oracle.gradient(start, *batch) + c)
  (data,) = small_problem.element((x, y), 1)
  found = small_problem.train_locally(
    data,
    correction=corrections.Mime('sgdm', base_beta1=0.0),
    broadcast={'m': tuple(map(tf.zeros_like, small_problem.model().initial_weights[0]))},
    exchanged=tuple(tf.constant(w, tf.float32) for w in oracle.unpack(c)),
    batching=Batching(4, epochs=2, shuffle=False),
  )
  np.testing.assert_allclose(oracle.pack(found.update), start - theta, atol=2e-6)
