"""Identities between the algorithms; remarks 1 to 3 of "AdaBest" are in its oracle."""

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive import schedules
from tff_adaptive.client import Batching

N = small_problem.NUM_CLIENTS
COHORTS = small_problem.cohorts(4)
EVERYONE = list(range(N))


@pytest.fixture(scope='module', autouse=True)
def _graph_context(graph):
  with tff.framework.get_context_stack().install(graph):
    yield


def _run(name, **options):
  """A run of an algorithm with shuffled batches, weight decay and clients weighted alike."""
  process = small_problem.process(
    name,
    schedules.RoundDecay(0.2, factor=0.9),
    small_problem.linear_model,
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
    ('fed_avg', {'sam_rho': 1e-30}),  # A step that no weight notices.
  ],
)
@pytest.mark.sample(1)
def test_without_its_weights_a_correction_is_fed_avg(fed_avg, name, options):
  """Remark 4 of AdaBest, FedProx's penalty, and sharpness-aware steps; bit for bit."""
  run = _run(name, **options)
  for cohort, theta in zip(COHORTS, fed_avg):
    assert _same_bits(run.round(cohort).theta, theta)


@pytest.mark.exhaustive
def test_ada_best_with_beta_one_is_fed_dyn_under_full_participation():
  """Remark 5, where |S| / N = 1; mu = 0 because the clients of the two are unlike."""
  ada_best = _run('ada_best', mu=0, beta=1)
  fed_dyn = _run('fed_dyn', mu=0)
  for _ in range(3):
    ada_best.round(EVERYONE)
    fed_dyn.round(EVERYONE)
    assert _same_bits(ada_best.theta, fed_dyn.theta)
    assert _same_bits(ada_best.h, fed_dyn.h)
  ada_best.round(EVERYONE[:3])
  fed_dyn.round(EVERYONE[:3])
  assert not np.allclose(ada_best.theta, fed_dyn.theta, atol=1e-3)
