"""AdaBest's numbers; ten rounds of its formulas are in corrections_oracle_test."""

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
