"""Slots of the client optimizer that a part names: kept, averaged, averaged by blocks."""

import dataclasses
from types import MappingProxyType

import numpy as np
import pytest
import tensorflow as tf

import oracle
from oracle import newer, optimizers as of_oracle, slots
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, optimizers
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.corrections import afl, optimizer_slots

MOMENTS = {'beta1': 0.9, 'beta2': 0.99, 'tau': 1e-3}
MUON = {'momentum': 0.9, 'beta2': 0.99, 'tau': 1e-3, 'decay': 0.1}


def with_slots(**rules):
  """A part that only names slots."""

  @dataclasses.dataclass(frozen=True)
  class Named(corrections.Correction):
    """Names slots."""

    name = 'named'
    optimizer_slots = MappingProxyType(rules)

  return Named()


def run(part, optimizer, state=None, group=3):
  """Some rounds of three of seven clients."""
  training = ClientTraining(optimizer, Batching(4, epochs=2, shuffle=False), optimizer_state=state)
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    part,
    client_learning_rate=0.2,
    client_weighting='uniform',
    training=training,
  )
  with engine.graph_context(clients_per_step=group):
    return small_problem.Run(process, small_problem.clients()).rounds(small_problem.cohorts(3))


@pytest.mark.exhaustive
@pytest.mark.parametrize('rule', ['keep', 'average'])
def test_a_part_that_names_all_slots_is_the_setting_for_all(rule):
  momentum = optimizers.build_sgdm(0.1, 0.5)
  named = run(with_slots(m=rule, step=rule), momentum)
  np.testing.assert_array_equal(named.theta, run(corrections.chain(), momentum, rule).theta)


METHODS = {
  'fed_adamw': (
    slots.FedAdamW,
    optimizers.build_adamw(0.1, decay=0.1, **MOMENTS),
    lambda: of_oracle.Adam(None, decay=0.1, **MOMENTS),
  ),
  'fed_lada': (
    slots.FedLADA,
    optimizers.build_amsgrad(0.1, **MOMENTS),
    lambda: of_oracle.AmsGrad(None, **MOMENTS),
  ),
  'fed_muon': (
    slots.FedMuon,
    algorithms.build_client_optimizer('muon', MUON),
    lambda: of_oracle.PerTensor(lambda: of_oracle.Muon(None, **MUON), oracle.SHAPES),
  ),
  'fed_muon, hidden matrices': (
    slots.FedMuon,
    algorithms.build_client_optimizer('muon', {**MUON, 'adamw': 'head'}),
    lambda: muon_of_hidden(),
  ),
}


def muon_of_hidden():
  """The oracle's optimizer where the second of the two layers takes AdamW's steps."""
  optimizer = of_oracle.PerTensor(lambda: of_oracle.Muon(None, **MUON), oracle.SHAPES)
  for of_head in optimizer.parts[2:]:
    of_head.adamw = True
  return optimizer


@pytest.mark.parametrize('case', METHODS)
@pytest.mark.sample(2)
def test_rounds_equal_the_formulas(case):
  """The vectors have these methods on tensors of one axis; here are matrices, too."""
  kind, optimizer, make = METHODS[case]
  name = case.partition(',')[0]
  process = algorithms.build_process(
    name,
    small_problem.model(),
    values={'global_share': 0.4},
    client_learning_rate=0.05,
    training=ClientTraining(optimizer, Batching(4, epochs=2, shuffle=False)),
  )
  expected = kind(
    small_problem.theta_0(),
    small_problem.clients(),
    server=oracle.Sgd(1.0),
    eta_l=lambda t: 0.05,
    batch_size=4,
    epochs=2,
    optimizer=make,
    global_share=0.4,
    shapes=oracle.SHAPES,
  )
  with engine.graph_context(clients_per_step=3):
    rounds = small_problem.Run(process, small_problem.clients())
    for cohort in small_problem.cohorts(4):
      rounds.round(cohort)
      expected.round(cohort)
  error = np.abs(rounds.theta - expected.theta).max()
  assert error <= 2e-5 * np.abs(expected.theta).max()


@pytest.mark.exhaustive
def test_a_share_of_one_repeats_the_last_update():
  """No update comes before the first round, so that the model never moves."""
  process = algorithms.build_process(
    'fed_lada',
    small_problem.model(),
    values={'global_share': 1.0},
    client_learning_rate=0.1,
    training=ClientTraining(batching=Batching(4)),
  )
  with engine.graph_context():
    done = small_problem.Run(process, small_problem.clients()).rounds(small_problem.cohorts(2))
  np.testing.assert_array_equal(done.theta, small_problem.theta_0())


def test_slots_have_rules_by_name_and_kind():
  of_optimizer = [('m', True), ('m', False), ('step', False)]
  part = with_slots(**{'m:matrices': 'average', 'step': 'keep'})
  rules = optimizer_slots.rules_of(part, 'reset', of_optimizer)
  assert rules == ('average', 'reset', 'keep')


@pytest.mark.parametrize(
  ('part', 'words'),
  [
    (with_slots(v='keep'), "named needs a client optimizer with a slot 'v', found one with none"),
    (with_slots(m='keeps'), "optimizer_slots of named has m='keeps': give one of reset, keep"),
  ],
)
def test_a_slot_or_rule_that_does_not_exist_is_refused(part, words):
  optimizer = None
  if 'keeps' in words:
    optimizer = optimizers.build_sgdm(0.1, 0.5)
  with pytest.raises(ValueError, match=words):
    run(part, optimizer)


def test_two_parts_with_a_rule_for_the_same_slot_are_refused():
  with pytest.raises(ValueError, match="both say what becomes of the client optimizer's v; leave"):
    corrections.chain(corrections.FedAdamW(), corrections.FedLADA())


def test_the_nearest_point_of_the_simplex_is_found():
  """Its condition: entries above 0 have moved by the same number, the others by less."""
  values = np.float32([0.9, 0.7, -0.2, 0.1])
  projected = np.asarray(afl.on_simplex(tf.constant(values)))
  np.testing.assert_allclose(projected, [0.6, 0.4, 0.0, 0.0], atol=1e-7)
  np.testing.assert_allclose(afl.on_simplex(tf.constant([0.25] * 4)), [0.25] * 4, atol=1e-7)


def test_clients_with_a_large_loss_gain_weight_in_afl():
  process = algorithms.build_process(
    'afl',
    small_problem.model(),
    values={'lambda_rate': 0.01},
    clients=corrections.RegisteredClients(small_problem.NUM_CLIENTS, 8.0),
    client_learning_rate=0.1,
    training=ClientTraining(batching=Batching(4)),
  )
  everyone = list(range(small_problem.NUM_CLIENTS))
  with engine.graph_context():
    done = small_problem.Run(process, small_problem.clients()).rounds([everyone])
  theta = small_problem.theta_0()
  losses = [newer.loss(theta, *pair) for pair in small_problem.clients()]
  shares = np.asarray(done.state.correction['shares'])
  assert shares.sum() == pytest.approx(1)
  assert list(np.argsort(shares)) == list(np.argsort(losses))
