"""Methods that are FedAvg, or local training, for some values of their hyperparameters."""

import numpy as np
import pytest
import tensorflow_federated as tff

import oracle
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections
from tff_adaptive.client import Batching, ClientTraining

N = small_problem.NUM_CLIENTS
EVERYONE = list(range(N))
COHORTS = small_problem.cohorts(3)
CLIENTS = corrections.RegisteredClients(N, 8.0)


@pytest.fixture(scope='module', autouse=True)
def _graph_context(graph):
  with tff.framework.get_context_stack().install(graph):
    yield


def run_of(name, values=None, cohorts=COHORTS, batching=None, model=None, data=None, **options):
  """A run of some rounds with shuffled batches and clients weighted alike."""
  process = algorithms.build_process(
    name,
    model or small_problem.linear_model(),
    values=values or {},
    clients=CLIENTS,
    client_learning_rate=0.2,
    client_weighting='uniform',
    training=ClientTraining(batching=batching or Batching(4, epochs=2)),
    **options,
  )
  return small_problem.Run(process, data or small_problem.clients()).rounds(cohorts)


@pytest.fixture(scope='module')
def fed_avg(_graph_context):
  return run_of('fed_avg').theta


@pytest.mark.parametrize(
  ('name', 'values'),
  [
    ('fed_per', {'layers': 'none'}),
    ('lg_fed_avg', {'layers': 'none'}),
    ('fed_rep', {'layers': 'none', 'head_share': 0.0}),
    ('fed_babu', {'layers': 'none'}),
    ('fed_bn', {'layers': 'none'}),
    ('ditto', {}),
    ('apfl', {'alpha_mix': 0.0}),
    ('moon', {'contrast': 0.0}),
    ('fed_ntd', {'distillation': 0.0}),
    ('q_fed_avg', {'q': 0.0}),
    ('afl', {'lambda_rate': 0.0}),
    ('fed_ala', {'ala_share': 0.0}),
    ('fed_lesam', {'rho': 0.0}),
    ('fed_acg', {'lookahead': 0.0, 'pull': 0.0}),
    ('fed_init', {'relaxation': 0.0}),
  ],
)
@pytest.mark.sample(1)
def test_without_its_weights_a_method_is_fed_avg(fed_avg, name, values):
  run = run_of(name, values)
  np.testing.assert_allclose(run.theta, fed_avg, rtol=1e-6, atol=1e-6)
  if name == 'apfl':
    for state in run.client_states.values():
      client_model = oracle.pack(run.process.client_model(run.state, state))
      np.testing.assert_allclose(client_model, run.theta, rtol=1e-6)


@pytest.mark.exhaustive
def test_fed_varp_is_fed_avg_if_all_clients_take_part():
  everyone = [EVERYONE] * 3
  theta = run_of('fed_varp', cohorts=everyone).theta
  np.testing.assert_allclose(theta, run_of('fed_avg', cohorts=everyone).theta, rtol=1e-5, atol=1e-6)
  assert np.abs(run_of('fed_varp').theta - run_of('fed_avg').theta).max() > 1e-3


@pytest.mark.exhaustive
def test_fed_proto_without_its_prototypes_is_fed_avg():
  values = {'layers': 'none', 'proto_weight': 0.0}
  theta = run_of('fed_proto', values, model=small_problem.model_with_features()).theta
  wanted = run_of('fed_avg', model=small_problem.model_with_features()).theta
  np.testing.assert_allclose(theta, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
def test_fed_lc_without_its_calibration_is_fed_avg_if_clients_have_all_classes():
  """FedLC leaves out the classes that a client has not."""
  data = [(x, (np.arange(len(y)) % 3).astype(np.int32)) for x, y in small_problem.clients()]
  theta = run_of('fed_lc', {'calibration': 0.0}, data=data).theta
  np.testing.assert_allclose(theta, run_of('fed_avg', data=data).theta, rtol=1e-6, atol=1e-6)


@pytest.mark.exhaustive
def test_fed_smoo_without_its_perturbation_is_fed_dyn():
  theta = run_of('fed_smoo', {'rho': 0.0, 'mu': 0.1}).theta
  np.testing.assert_allclose(theta, run_of('fed_dyn', {'mu': 0.1}).theta, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_ditto_without_its_pull_is_local_training():
  """A client's own model is what FedAvg makes of this client alone."""
  ditto = run_of('ditto', {'lam': 0.0}, [EVERYONE] * 3)
  for i in (0, 3):
    alone = run_of('fed_avg', cohorts=[[i]] * 3).theta
    client_model = oracle.pack(ditto.process.client_model(ditto.state, ditto.client_states[i]))
    np.testing.assert_allclose(client_model, alone, rtol=1e-5, atol=1e-6)


def test_per_fed_avg_without_its_first_step_is_fed_avg_on_every_second_batch():
  """All examples are one batch, so that every second batch is the other one again."""
  twice = run_of('per_fed_avg', {'inner_rate': 0.0}, batching=Batching(None, epochs=4))
  once = run_of('fed_avg', batching=Batching(None, epochs=2))
  np.testing.assert_allclose(twice.theta, once.theta, rtol=1e-6, atol=1e-6)


def test_what_stays_at_the_clients_is_not_aggregated():
  run = run_of('fed_per', {'layers': 'weight_1'})
  first = run.process.initialize().global_model_weights.trainable
  now = run.state.global_model_weights.trainable
  np.testing.assert_array_equal(now[1], first[1])
  assert np.abs(np.asarray(now[0]) - np.asarray(first[0])).max() > 1e-3
  state = run.client_states[COHORTS[0][0]]
  assert [np.shape(w) for w in state['own']] == [np.shape(first[1])]


def test_parts_of_a_chain_have_their_own_hooks():
  """FedPer behind Ditto replaces the head of Ditto's model by the client's."""
  chain = run_of('ditto+fed_per', {'layers': 'weight_1'})
  i = COHORTS[0][0]
  state = chain.client_states[i]
  client_model = chain.process.client_model(chain.state, state)
  np.testing.assert_array_equal(client_model[0], state[0]['own'][0])
  np.testing.assert_array_equal(client_model[1], state[1]['own'][0])
  np.testing.assert_allclose(
    chain.theta, run_of('fed_per', {'layers': 'weight_1'}).theta, rtol=1e-6, atol=1e-7
  )
