"""Formulas of corrections called by themselves; rounds of them are in corrections_oracle_test."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections, registry
from tff_adaptive.registry import entries

G, THETA, H = inputs.weights(6), inputs.weights(7), inputs.weights(8)
BOTH = (corrections.Scaffold, corrections.ScaffoldM)


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_defaults_are_the_registrys(name):
  entry = registry.ALGORITHMS[name]
  found = {f.name: f.default for f in _fields(entries.resolve(entry.correction))}
  for h in () if entry.settings else entry.hyperparameters:
    assert found.get(h.name, h.default) in (h.default, dataclasses.MISSING)


def _fields(kind):
  return dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()


@pytest.mark.parametrize(
  'make, words',
  [
    (lambda: corrections.FedProx(-1.0), 'mu must be finite and at least 0, found -1'),
    (lambda: corrections.FedDyn(0.1, 0), 'num_clients must be at least 1, found 0'),
    (lambda: corrections.FedDyn(-0.1, 3), 'mu must be finite and at least 0, found -0.1'),
    (lambda: corrections.FedDyn(0.1, 3, 0.0), 'mean_examples must be finite and above 0'),
    (lambda: corrections.AdaBest(plateau_rounds=0), 'plateau_rounds must be at least 1, found 0'),
    (lambda: corrections.AdaBest(beta=1.5), r'beta must be in \[0, 1\], found 1.5'),
    (lambda: corrections.Scaffold(12, 3), 'scaffold_option must be 1 or 2, found 3'),
    (lambda: corrections.Scaffold(0), 'num_clients must be at least 1, found 0'),
    (lambda: corrections.ScaffoldM(0), 'num_clients must be at least 1, found 0'),
    (lambda: corrections.FedCM(0.0), r'alpha must be in \(0, 1\], found 0.0'),
    (lambda: corrections.FedExP(-1.0), 'eps must be finite and at least 0, found -1'),
    (lambda: corrections.FedNova(1.0), r'local_momentum must be in \[0, 1\), found 1.0'),
    (lambda: corrections.FedNova(0.5, 0.1), 'the paper normalises for either of them; give one'),
    (lambda: corrections.Mime('lion'), 'base_optimizer must be sgdm or adam or adagrad, found'),
    (lambda: corrections.DeltaSGD(0.0), 'gamma must be finite and above 0, found 0.0'),
  ],
)
def test_numbers_out_of_their_range_are_refused(make, words):
  with pytest.raises(ValueError, match=words):
    make()


def test_the_gradient_of_fed_proxs_penalty_is_added():
  client = inputs.client_round()
  found = corrections.FedProx(0.3).gradient(client, THETA, G)
  trees = zip(G, THETA, client.theta_0)
  inputs.assert_close(found, [g + 0.3 * (x - x0) for g, x, x0 in trees])
  assert corrections.FedProx(0.0).gradient(client, THETA, G) is G  # FedAvg, and no operation.


@pytest.mark.parametrize(
  'correction, n_bar, mu',
  [
    (corrections.FedDyn(0.3, 10, mean_examples=4.0), 0.0, [0.15, 0.6, 0.0]),
    (corrections.AdaBest(mu=0.3, scale_mu=True), 4.0, [0.15, 0.6, 0.0]),
    (corrections.AdaBest(mu=0.3, scale_mu=True), 1.0, [0.0375, 0.15, 0.0]),
    (corrections.AdaBest(mu=0.3, scale_mu=True), 0.0, [0.3, 0.3, 0.0]),  # Nobody seen yet.
  ],
)
def test_mu_of_an_unbalanced_client_goes_with_the_inverse_of_its_examples(correction, n_bar, mu):
  sizes = tf.constant([8.0, 2.0, 0.0])  # Who has none takes no steps: any finite number will do.
  client = inputs.client_round(3, num_examples=sizes, broadcast=tf.constant(n_bar))
  g, theta = inputs.weights(6, 3), inputs.weights(7, 3)
  found = correction.gradient(client, theta, g)
  pull = 1.0 if isinstance(correction, corrections.FedDyn) else 0.0
  trees = zip(g, client.client_state['h'], client.theta_0, theta)
  wanted = [g - inputs.per_client(mu, g) * (h + pull * (x0 - x)) for g, h, x0, x in trees]
  inputs.assert_close(found, wanted)


def test_the_registry_configures_fed_dyn_with_and_without_the_clients_sizes():
  clients = corrections.RegisteredClients(7, 5.5)
  plain = corrections.FedDyn.configure({'mu': 0.2, 'scale_mu': False}, clients)
  assert plain == corrections.FedDyn(0.2, 7, None)
  scaled = corrections.FedDyn.configure({'mu': 0.2, 'scale_mu': True}, clients)
  assert scaled == corrections.FedDyn(0.2, 7, 5.5)


@pytest.mark.parametrize('kind', BOTH)
def test_a_client_of_scaffold_without_steps_divides_by_nothing(kind):
  client = inputs.client_round(broadcast=H)
  zero = tuple(np.zeros_like(g) for g in G)
  state, upload = kind(12).client_update(client, zero, tf.constant(0.0))
  for leaf in (*state['h'], *upload):
    assert np.isfinite(leaf).all()


def test_ada_best_starts_at_zero():
  correction = corrections.AdaBest()
  client, server = correction.client_state(THETA), correction.server_state(THETA)
  for state in client, server:
    inputs.assert_close(state['h'], [np.zeros_like(w) for w in THETA])
  rest = {name: float(value) for name, value in {**server, **client}.items() if name != 'h'}
  zeros = ('last_round', 'highest_h_norm', 'rounds_since', 'examples_seen', 'clients_seen')
  assert rest == {
    'beta': pytest.approx(correction.beta),
    'lowest_h_norm': np.inf,
    **dict.fromkeys(zeros, 0),
  }


def test_ada_bests_beta_shrinks_where_the_norm_finds_no_new_minimum():
  """||h|| follows a course given by the pseudo-gradients; beta as the rule says it in words."""
  correction = corrections.AdaBest(beta=1.0, beta_decay=0.5, plateau_rounds=2)
  state = correction.server_state((np.zeros([1], np.float32),))
  last, found = 0.0, []
  # Rising (each a maximum), falling (each a minimum), then 2, 2, 3, 2 without a new minimum.
  for norm in [2, 4, 3, 1.5, 2, 2, 3, 2, 1, 1, 5, 4.5, 4.5, 4.6]:
    h = tf.constant([float(state['h'][0][0])])
    assert float(h[0]) == pytest.approx(last)
    beta = float(state['beta'])
    g_bar = (tf.constant([norm / beta - float(h[0])]),)  # beta (h + g) = norm.
    server = inputs.server_round(g_bar=g_bar, uploads=tf.constant(1.0))
    state, _ = correction.server_update(state, server)
    last = norm
    found.append(float(state['beta']))
  wanted = [1, 1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.125]
  assert found == wanted
