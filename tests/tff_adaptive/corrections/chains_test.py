"""A chain of parts is what the parts are one after another, and one part is itself."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import oracle
from oracle import methods
from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, corrections, registry
from tff_adaptive.client import Batching, ClientTraining

N = small_problem.NUM_CLIENTS
BATCHING = Batching(4, shuffle=False)
CLIENTS = corrections.RegisteredClients(N, 8.0)


@pytest.fixture(scope='module')
def run(graph):
  """A function (correction, rounds) -> the run of the correction after some rounds."""

  def make(correction, num_rounds=3, batching=BATCHING):
    process = algorithms.build_drift_corrected(
      small_problem.model(),
      correction,
      client_learning_rate=0.2,
      training=ClientTraining(batching=batching),
    )
    new_run = engines.run(graph, small_problem.Run, process, small_problem.clients())
    return engines.run(graph, new_run.rounds, small_problem.cohorts(num_rounds))

  return make


def follow(oracle_run, num_rounds=3):
  """An oracle's theta after some rounds of the same cohorts."""
  for cohort in small_problem.cohorts(num_rounds):
    oracle_run.round(cohort)
  return oracle_run.theta


HOW = dict(eta_l=lambda t: 0.2, batch_size=4, server=oracle.Sgd(1.0))


def test_a_chain_of_nothing_is_fed_avg_and_of_one_part_that_part():
  assert type(corrections.chain()) is corrections.Correction
  prox = corrections.FedProx(0.3)
  assert corrections.chain(prox) is prox
  assert corrections.chain(corrections.Correction(), prox, corrections.chain()) is prox
  three = corrections.chain(prox, corrections.chain(corrections.Sam(0.1), corrections.Clip(1.0)))
  assert [part.name for part in three.parts] == ['fed_prox', 'sam', 'clip']
  assert three.name == 'fed_prox+sam+clip'
  assert three == corrections.chain(*three.parts)


@pytest.mark.parametrize(
  'parts',
  [
    (corrections.Scaffold(N), corrections.Sam(0.3)),
    (corrections.Sam(0.3), corrections.Scaffold(N)),  # SAM is where the gradient is taken.
  ],
  ids=['scaffold+sam', 'sam+scaffold'],
)
@pytest.mark.sample(1)
def test_scaffold_with_sam_is_fed_gamma(run, parts):
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  wanted = follow(oracle.Scaffold(theta, clients, scaffold_option=2, sam_rho=0.3, **HOW))
  np.testing.assert_allclose(run(corrections.chain(*parts)).theta, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.exhaustive
def test_order_matters_where_it_should(run):
  """A decay before the clipping is clipped too."""
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  clip = corrections.Clip(0.3)
  decay = corrections.WeightDecay(0.5)
  wanted = follow(oracle.FedAvg(theta, clients, clip=0.3, weight_decay=0.5, **HOW))
  moved = run(corrections.chain(clip, decay))
  np.testing.assert_allclose(moved.theta, wanted, rtol=2e-5, atol=2e-6)
  other = run(corrections.chain(decay, clip))
  assert np.abs(other.theta - moved.theta).max() > 1e-3


@dataclasses.dataclass(frozen=True)
class Doubled(corrections.Correction):
  """Sends twice the update, and the server halves the mean; counts rounds at both sides."""

  name = 'doubled'

  def client_state(self, weights):
    return collections.OrderedDict(rounds=tf.zeros([]))

  def server_state(self, weights):
    return collections.OrderedDict(rounds=tf.zeros([]))

  def update(self, client, g_i, steps):
    return tuple(2 * g for g in g_i)

  def client_update(self, client, g_i, steps):
    return collections.OrderedDict(rounds=client.client_state['rounds'] + 1), tf.ones([])

  def restore(self, server):
    return tuple(g / 2 for g in server.g_bar)

  def server_update(self, server_state, server):
    return collections.OrderedDict(rounds=server_state['rounds'] + server.uploads), server.g_bar

  def inference_weights(self, server_state, theta, theta_bar):
    return None


@pytest.mark.parametrize('is_first', [True, False])
@pytest.mark.sample(1)
def test_what_a_part_does_to_the_update_is_undone_before_others_see_it(run, is_first):
  """FedDyn's h is a sum of mean updates, whatever a part before or after it sends."""
  fed_dyn = corrections.FedDyn(0.3, N)
  if is_first:
    parts = (Doubled(), fed_dyn)
  else:
    parts = (fed_dyn, Doubled())
  alone = run(fed_dyn)
  both = run(corrections.chain(*parts))
  np.testing.assert_allclose(both.theta, alone.theta, rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(both.h, alone.h, rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(both.theta_bar, alone.theta_bar, rtol=1e-6, atol=1e-7)
  part_state = both.state.correction[0 if is_first else 1]
  assert float(part_state['rounds']) == 3


@pytest.mark.exhaustive
def test_factors_of_the_server_step_are_multiplied(run):
  exp = corrections.FedExP(1e-3)
  alone = run(exp)
  with_prox = run(corrections.chain(corrections.FedProx(0), exp))
  np.testing.assert_allclose(with_prox.theta, alone.theta, rtol=1e-6, atol=1e-7)
  np.testing.assert_allclose(with_prox.theta_bar, alone.theta_bar, rtol=1e-6, atol=1e-7)


@pytest.mark.exhaustive
def test_fed_nova_changes_nothing_where_all_clients_take_the_same_number_of_steps(run):
  prox = corrections.FedProx(0.3)
  batching = Batching(4, shuffle=False, local_steps=3)
  alone = run(prox, batching=batching)
  both = run(corrections.chain(prox, corrections.FedNova()), batching=batching)
  np.testing.assert_allclose(both.theta, alone.theta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
  ('parts', 'words'),
  [
    ((corrections.Mime(), corrections.Sam()), '^mime cannot be combined with sam: its difference'),
    (
      (corrections.Scaffold(N), corrections.DeltaSGD()),
      '^delta_sgd cannot be combined with scaffold: delta_sgd chooses the size',
    ),
    ((corrections.FedProx(), corrections.FedProx(0.1)), '^fed_prox stands more than once'),
  ],
)
def test_parts_that_exclude_each_other_are_refused_with_the_reason(parts, words):
  with pytest.raises(ValueError, match=words):
    corrections.chain(*parts)
  with pytest.raises(ValueError, match=words):
    registry.algorithm('+'.join(part.name for part in parts))


def test_what_is_no_part_is_refused():
  with pytest.raises(TypeError, match='the parts of a chain must be corrections, found 3'):
    corrections.chain(corrections.Sam(), 3)


def test_a_chain_by_name_has_the_parts_options_and_facts():
  entry = registry.algorithm('fed_dyn+fed_prox+sam')
  assert [h.name for h in entry.hyperparameters] == ['fed_dyn.mu', 'scale_mu', 'fed_prox.mu', 'rho']
  assert (entry.is_stateful, entry.client_weighting, entry.assumes_sgd) == (True, 'uniform', '')
  values = entry.values({'fed_prox.mu': 0.5, 'sam.rho': 0.2})
  configured = entry.correction.configure(values, CLIENTS)
  assert configured == corrections.chain(
    corrections.FedDyn(0.02, N), corrections.FedProx(0.5), corrections.Sam(0.2)
  )
  with pytest.raises(ValueError, match=r"unknown option of fed_dyn\+fed_prox\+sam 'mu'"):
    entry.values({'mu': 0.5})
  assert (
    registry.algorithm('scaffold+clip').assumes_sgd == registry.algorithm('scaffold').assumes_sgd
  )


def test_a_servers_optimizer_and_settings_come_with_the_names_of_a_chain():
  entry = registry.algorithm('fed_yogi+scaffold+fed_sam')
  assert (entry.server_optimizer, entry.settings) == ('yogi', {'sam_rho': 0.05})
  assert registry.algorithm('ada_best+sam').default('beta', 'nesterov') == 0.2
  with pytest.raises(ValueError, match=r'several server optimizers \(adam, yogi\)'):
    registry.algorithm('fed_yogi+fed_adam')
  with pytest.raises(ValueError, match=r'sam_rho is 0\.05 in one part of the chain and 0\.1 in'):
    registry.algorithm('fed_sam+fed_speed')
  with pytest.raises(ValueError, match="unknown part of a chain 'scafold'"):
    registry.algorithm('scafold+sam')


def test_a_users_part_mixes_with_built_in_ones(tmp_path):
  path = tmp_path / 'a+b.py'
  path.write_text(
    'import dataclasses\nfrom tff_adaptive import corrections\n\n'
    '@dataclasses.dataclass(frozen=True)\nclass Pull(corrections.FedProx):\n'
    '  strength: float = 2.0\n  name = "pull"\n'
  )
  assert registry.pieces(f'sam+{path}:Pull') == ['sam', f'{path}:Pull']
  entry = registry.algorithm(f'sam+{path}:Pull')
  assert entry.name == 'sam+pull'
  assert entry.source.path == str(path)
  assert entry.values({'strength': 1.0}) == {'rho': 0.05, 'mu': 0.02, 'strength': 1.0}


@pytest.mark.exhaustive
def test_fed_cm_and_sam_are_mo_fed_sam(run):
  theta = small_problem.theta_0()
  clients = small_problem.clients()
  wanted = follow(methods.FedCM(theta, clients, alpha=0.3, sam_rho=0.3, **HOW))
  trained = run(corrections.chain(corrections.FedCM(0.3), corrections.Sam(0.3)))
  np.testing.assert_allclose(trained.theta, wanted, rtol=2e-5, atol=2e-6)
