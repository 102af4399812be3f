"""Newer methods in groups of clients against the NumPy oracle; singly they follow the vectors."""

import collections
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import oracle, oracle_methods, small_problem
from tests.integration import corrections_oracle_test as drift
from tff_adaptive import algorithms, corrections, engine, optimizers, schedules
from tff_adaptive._utils import seeds
from tff_adaptive.client import Batching, ClientTraining

ROUNDS, FACTOR = 5, 0.9
N = small_problem.NUM_CLIENTS
EVERYONE = [list(range(N))] * ROUNDS
DRAWN = Batching(4, local_steps=4, random_local_steps=True, shuffle=False)

# Client optimizers, this project's and the oracle's.
CLIENTS = {
  'adam': (
    optimizers.build_adam(1.0, tau=0.1),
    lambda: oracle.Adaptive('adam', None, 0.9, 0.99, 0.1),
  ),
}


class Case(NamedTuple):
  """A method: what both have as `options`, and how clients train."""

  correction: Callable
  oracle: Callable
  options: Mapping = MappingProxyType({})
  server: str = 'sgd'
  by_examples: bool = False
  sam_rho: float = 0.0
  optimizer: str | None = None
  optimizer_state: str = 'reset'
  rate: float = 0.2
  cohorts: list | None = None
  batching: Batching = Batching(4, epochs=2, shuffle=False)  # K_i from 2 to 8.


NOVA = Case(corrections.FedNova, oracle_methods.FedNova, by_examples=True)
CM = Case(corrections.FedCM, oracle_methods.FedCM, {'alpha': 0.3})
EXP = Case(corrections.FedExP, oracle_methods.FedExP, {'eps': 1e-3})
LITE = Case(corrections.MimeLite, oracle_methods.MimeLite)
MIME = Case(corrections.Mime, oracle_methods.Mime, by_examples=True)
DELTA = Case(
  corrections.DeltaSGD, oracle_methods.DeltaSGD, {'gamma': 0.5, 'growth': 0.1}, by_examples=True
)
SPEED = Case(lambda lam: corrections.FedDyn(1 / lam, N), oracle_methods.FedSpeed, {'lam': 4.0})
PLAIN = Case(corrections.Correction, oracle.FedAvg, by_examples=True, optimizer='adam', rate=0.05)
ADAM = {'base_optimizer': 'adam', 'base_beta2': 0.9, 'base_eps': 0.5}
ADAGRAD = {'base_optimizer': 'adagrad', 'base_eps': 0.5}

# In groups, with server optimizers and sharpness that the vectors do not have.
CASES = {
  'fed_nova': NOVA._replace(options={'local_momentum': 0.7}, server='adam'),
  'fed_cm': CM._replace(by_examples=True, sam_rho=0.3),
  'fed_exp': EXP._replace(server='yogi'),
  'mime_lite': LITE._replace(options=ADAM, server='sgdm'),
  'mime': MIME._replace(options=ADAGRAD, sam_rho=0.3),
  'delta_sgd': DELTA,
  'scaffnew': Case(
    corrections.Scaffnew, oracle_methods.Scaffnew, {'p': 1 / 4}, cohorts=EVERYONE, batching=DRAWN
  ),
  'fed_speed': SPEED._replace(sam_rho=0.3, cohorts=EVERYONE),
  'keep': PLAIN._replace(optimizer_state='keep', server='sgdm'),
  'average': PLAIN._replace(optimizer_state='average', by_examples=False),
}


def _pair(case):
  """The run and the oracle of a case."""
  server, oracle_server = drift.SERVERS[case.server]()
  optimizer, oracle_optimizer = CLIENTS.get(case.optimizer, (None, None))
  common = dict(sam_rho=case.sam_rho, optimizer_state=case.optimizer_state)
  training = ClientTraining(
    **common, batching=case.batching, **({'optimizer': optimizer} if optimizer else {})
  )
  known = {name: value for name, value in case.options.items() if name != 'p'}
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    case.correction(**known),
    server,
    client_learning_rate=schedules.RoundDecay(case.rate, factor=FACTOR),
    training=training,
    client_weighting='examples' if case.by_examples else 'uniform',
  )
  expected = case.oracle(
    small_problem.theta_0(),
    small_problem.clients(),
    server=oracle_server,
    eta_l=lambda t: case.rate * FACTOR**t,
    batch_size=case.batching.batch_size,
    epochs=100 if case.batching.local_steps else case.batching.epochs,
    by_examples=case.by_examples,
    optimizer=oracle_optimizer,
    **common,
    **case.options,
  )
  return small_problem.Run(process, small_problem.clients()), expected


@pytest.mark.parametrize('name', CASES)
def test_five_rounds_equal_the_formulas(name):
  case, drawn = CASES[name], set()
  with engine.graph_context(clients_per_step=3):
    run, expected = _pair(case)
    for t, cohort in enumerate(case.cohorts or small_problem.cohorts(ROUNDS), 1):
      limits = None
      if case.batching.local_steps:
        k = int(case.batching.drawn_steps(seeds.fold(seeds.base(0), t)))
        limits = dict.fromkeys(cohort, k)
        drawn.add(k)
      run.round(cohort)
      expected.round(cohort, limits)
  drift.close('theta', run.theta, expected.theta)
  if getattr(run.state, 'inference_weights', ()):
    drift.close('theta_bar', run.theta_bar, expected.theta_bar)
  # What the cases need to decide something.
  assert len(drawn) != 1
  if case.oracle is oracle_methods.FedExP:
    assert max(expected.factors) > 1.1
  if case.oracle is oracle_methods.DeltaSGD:
    assert len(set(expected.etas)) > 20


def test_mime_lite_is_that_of_tff():
  """With momentum, where TFF's has no factor 1 - beta1: the same with its rate times that.

  TFF's other base optimizers add the step's own gradient to the frozen v, which the paper does not.
  """
  model, data = small_problem.model(), small_problem.clients()
  ours = algorithms.build_drift_corrected(
    model,
    corrections.MimeLite('sgdm', 0.75),
    client_learning_rate=0.4,
    client_weighting='examples',
  )
  tffs = tff.learning.algorithms.build_weighted_mime_lite(
    model, tff.learning.optimizers.build_sgdm(0.1, 0.75)
  )
  with engine.graph_context():
    states = [process.initialize() for process in (ours, tffs)]
    for cohort in small_problem.cohorts(4):
      batches = [
        tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(4)
        for x, y in (data[i] for i in cohort)
      ]
      states = [p.next(state, batches).state for p, state in zip((ours, tffs), states)]
  found, wanted = (oracle.pack(s.global_model_weights.trainable) for s in states)
  np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
  assert np.abs(found - small_problem.theta_0()).max() > 0.1
