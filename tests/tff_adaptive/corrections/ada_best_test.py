"""AdaBest's formulas; ten rounds of them are in corrections_oracle_test."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections, registry

G, THETA, H = inputs.weights(6), inputs.weights(7), inputs.weights(8)


def _server_state(correction, **given):
  return collections.OrderedDict(correction.server_state(THETA), **{'h': H, **given})


def test_it_starts_at_zero_with_the_registrys_numbers():
  entry = registry.ALGORITHMS['ada_best']
  correction = corrections.AdaBest()
  for name in 'mu', 'beta', 'scale_mu', 'beta_decay':
    assert getattr(correction, name) == entry.default(name)
  assert correction.plateau_rounds == 50
  client, server = correction.client_state(THETA), correction.server_state(THETA)
  for state in client, server:
    inputs.assert_close(state['h'], [np.zeros_like(w) for w in THETA])
  assert float(client['last_round']) == 0
  rest = {name: float(value) for name, value in server.items() if name != 'h'}
  assert rest == {
    'beta': pytest.approx(correction.beta),
    'lowest_h_norm': np.inf,
    'highest_h_norm': 0,
    'rounds_since': 0,
    'examples_seen': 0,
    'clients_seen': 0,
  }
  with pytest.raises(ValueError, match='plateau_rounds must be at least 1, found 0'):
    corrections.AdaBest(plateau_rounds=0)
  with pytest.raises(ValueError, match='beta must be'):
    corrections.AdaBest(beta=1.5)


def test_the_gradient_is_shifted_by_mu_h_i():
  client = inputs.client_round()
  found = corrections.AdaBest(mu=0.3).gradient(client, THETA, G)
  inputs.assert_close(found, [g - 0.3 * h for g, h in zip(G, client.client_state['h'])])
  assert corrections.AdaBest(mu=0.0).gradient(client, THETA, G) is G


@pytest.mark.parametrize(
  'n_bar, mu',
  [(4.0, [0.15, 0.6, 0.0]), (1.0, [0.0375, 0.15, 0.0]), (0.0, [0.3, 0.3, 0.0])],
  ids=['some seen', 'small ones seen', 'nobody seen yet'],
)
def test_mu_of_an_unbalanced_client_goes_with_the_inverse_of_its_examples(n_bar, mu):
  sizes = tf.constant([8.0, 2.0, 0.0])
  client = inputs.client_round(3, num_examples=sizes, broadcast=tf.constant(n_bar))
  g = inputs.weights(6, 3)
  found = corrections.AdaBest(mu=0.3, scale_mu=True).gradient(client, inputs.weights(7, 3), g)
  trees = zip(g, client.client_state['h'])
  inputs.assert_close(found, [g - inputs.per_client(mu, g) * h for g, h in trees])


def test_a_clients_estimate_fades_with_the_rounds_it_was_away():
  state = collections.OrderedDict(h=inputs.weights(2), last_round=tf.constant(1.0))
  client = inputs.client_round(client_state=state)  # t = 5.
  new, upload = corrections.AdaBest().client_update(client, G, tf.constant(4.0))
  inputs.assert_close(new['h'], [h / (5 - 1) + g for h, g in zip(state['h'], G)])
  assert float(new['last_round']) == 5
  assert float(upload) == 8  # n_i, for n-bar.


def test_the_servers_estimate_fades_by_beta_and_examples_are_counted():
  correction = corrections.AdaBest(beta=0.8)
  state = _server_state(correction, examples_seen=tf.constant(50.0), clients_seen=tf.constant(5.0))
  assert float(correction.broadcast(state)) == 10
  assert float(correction.broadcast(correction.server_state(THETA))) == 0
  server = inputs.server_round(uploads=tf.constant(6.0))
  new, direction = correction.server_update(state, server)
  h = [np.float32(0.8) * (h + g) for h, g in zip(H, server.g_bar)]
  inputs.assert_close(new['h'], h)
  inputs.assert_close(direction, [g + h for g, h in zip(server.g_bar, h)])
  assert float(new['examples_seen']) == 50 + 3 * 6
  assert float(new['clients_seen']) == 5 + 3
  unchanged = ('beta', 'lowest_h_norm', 'highest_h_norm', 'rounds_since')
  for name in unchanged:
    assert float(new[name]) == float(state[name])  # Without a decay.
  norm = np.sqrt(sum(np.sum(h * h) for h in H))
  assert float(correction.h_norm(state)) == pytest.approx(norm, rel=1e-6)


def test_beta_shrinks_where_the_norm_finds_no_new_minimum():
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
