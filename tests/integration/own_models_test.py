"""Own models, and changed losses, against the oracle: a perceptron, which the vectors have not.

`tests/research/vectors_test.py` has the other methods, alone and in groups.
"""

import numpy as np
import pytest

import oracle
from oracle import newer, personal
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, optimizers
from tff_adaptive.client import Batching, ClientTraining

N = small_problem.NUM_CLIENTS
HEAD = np.concatenate([np.full(size, i >= 2) for i, size in enumerate(oracle.SIZES)])

# The part, its class in the oracle, and the options of that.
CASES = {
  'fed_per': (corrections.FedPer(), personal.Kept, {'mask': HEAD}),
  'fed_per by name': (corrections.FedPer('weight_2, weight_3'), personal.Kept, {'mask': HEAD}),
  'lg_fed_avg': (corrections.LgFedAvg(), personal.Kept, {'mask': ~HEAD}),
  'fed_bn': (
    corrections.FedBN('weight_1'),
    personal.Kept,
    {'mask': np.concatenate([np.full(size, i == 1) for i, size in enumerate(oracle.SIZES)])},
  ),
  'fed_rep': (corrections.FedRep(head_share=0.4), personal.Kept, {'mask': HEAD, 'head_share': 0.4}),
  'fed_babu': (corrections.FedBABU(), personal.Kept, {'mask': HEAD, 'is_frozen': True}),
  'ditto': (corrections.Ditto(0.3), personal.Ditto, {'lam': 0.3}),
  'apfl, learnt': (
    corrections.APFL(0.4, True),
    personal.APFL,
    {'alpha_mix': 0.4, 'learn_alpha': True},
  ),
  'p_fed_me': (
    corrections.PFedMe(5.0, 3, 0.05),
    personal.PFedMe,
    {'moreau_lam': 5.0, 'inner_steps': 3, 'inner_rate': 0.05},
  ),
  'fed_ala': (
    corrections.FedALA('head', 0.4, 0.5),
    personal.FedALA,
    {'mask': HEAD, 'ala_share': 0.4, 'ala_rate': 0.5},
  ),
  'fed_proto': (
    corrections.FedProto('*', 0.5),
    personal.FedProto,
    {
      'mask': np.ones(len(HEAD), bool),
      'proto_weight': 0.5,
      'features': newer.features,
      'loss': newer.loss,
      'slope': newer.slope,
      'classes': 3,
    },
  ),
  'moon': (corrections.Moon(0.5, 0.4), newer.Moon, {'contrast': 0.5, 'temperature': 0.4}),
  'fed_lc': (corrections.FedLC(0.5), newer.FedLC, {'calibration': 0.5}),
  'fed_ntd': (corrections.FedNTD(0.5, 2.0), newer.FedNTD, {'distillation': 0.5, 'softening': 2.0}),
}


def pair(part, kind, options, yogi=False, **training):
  """The run of a part and of its oracle."""
  how = {'batch_size': 4, 'epochs': 2}
  server = None
  of_oracle = oracle.Sgd(1.0)
  if yogi:
    server = optimizers.build_yogi(0.1, tau=0.01)
    of_oracle = oracle.Adaptive('yogi', 0.1, 0.9, 0.99, 0.01)
  process = algorithms.build_drift_corrected(
    small_problem.model_with_features(),
    part,
    server,
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4, epochs=2, shuffle=False), **training),
  )
  expected = kind(
    small_problem.theta_0(),
    small_problem.clients(),
    server=of_oracle,
    eta_l=lambda t: 0.2,
    **how,
    **options,
  )
  return small_problem.Run(process, small_problem.clients()), expected


def close(actual, wanted):
  """Compares relative to the largest entry, as `corrections_oracle_test` does."""
  error = np.abs(actual - wanted).max()
  assert error <= 2e-5 * max(np.abs(wanted).max(), 1e-2), error


# Of a changed loss the model runs client by client, which is another path than that of a group.
OF_LOSSES = ('moon', 'fed_lc', 'fed_ntd', 'fed_proto')


@pytest.mark.parametrize(
  ('name', 'group'), [(name, 3) for name in CASES] + [(name, 1) for name in OF_LOSSES]
)
@pytest.mark.sample(1)
def test_rounds_equal_the_formulas(name, group):
  """Three of seven clients a round, in a server step of Yogi, alone and as a group of three."""
  with engine.graph_context(clients_per_step=group):
    run, expected = pair(*CASES[name], yogi=group == 3)
    for cohort in small_problem.cohorts(4):
      run.round(cohort)
      expected.round(cohort)
    close(run.theta, expected.theta)
    if not getattr(run.process, 'has_client_models', False):
      return
    for i, state in run.client_states.items():
      client_model = run.process.client_model(run.state, state)
      close(oracle.pack(client_model), expected.personal(i))
