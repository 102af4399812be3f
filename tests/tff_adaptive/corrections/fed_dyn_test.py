"""FedDyn's formulas, one by one; ten rounds of them are in corrections_oracle_test."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections

G, THETA = inputs.weights(6), inputs.weights(7)


def test_a_client_starts_at_zero_and_adds_its_pseudo_gradient_without_mu():
  correction = corrections.FedDyn(0.3, 10)
  for state in correction.client_state(THETA), correction.server_state(THETA):
    assert list(state) == ['h']
    inputs.assert_close(state['h'], [np.zeros_like(w) for w in THETA])
  client = inputs.client_round()
  state, upload = correction.client_update(client, G, tf.constant(4.0))
  inputs.assert_close(state['h'], [h + g for h, g in zip(client.client_state['h'], G)])
  assert list(state) == ['h']
  assert upload == ()


def test_the_regulariser_is_weighted_by_mu():
  client = inputs.client_round()
  found = corrections.FedDyn(0.3, 10).gradient(client, THETA, G)
  trees = zip(G, client.client_state['h'], client.theta_0, THETA)
  inputs.assert_close(found, [g - 0.3 * h - 0.3 * (x0 - x) for g, h, x0, x in trees])


def test_mu_of_an_unbalanced_client_goes_with_the_inverse_of_its_examples():
  sizes = np.array([8.0, 2.0, 0.0], np.float32)
  client = inputs.client_round(3, num_examples=tf.constant(sizes))
  g, theta = inputs.weights(6, 3), inputs.weights(7, 3)
  found = corrections.FedDyn(0.3, 10, mean_examples=4.0).gradient(client, theta, g)
  mu = np.array([0.15, 0.6, 0.0])  # Who has no examples takes no steps: any finite number will do.
  trees = zip(g, client.client_state['h'], client.theta_0, theta)
  wanted = [g - inputs.per_client(mu, g) * (h + x0 - x) for g, h, x0, x in trees]
  inputs.assert_close(found, wanted)


def test_the_server_adds_the_share_of_the_cohort_and_descends_along_both():
  correction = corrections.FedDyn(0.3, 12)
  state, server = {'h': inputs.weights(8)}, inputs.server_round()
  new, direction = correction.server_update(state, server)
  h = [h + 3 / 12 * g for h, g in zip(state['h'], server.g_bar)]
  inputs.assert_close(new['h'], h)
  inputs.assert_close(direction, [g + h for g, h in zip(server.g_bar, h)])
  norm = np.sqrt(sum(np.sum(h * h) for h in state['h']))
  assert float(correction.h_norm(state)) == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize('arguments', [(0.1, 0), (-0.1, 3), (0.1, 3, 0.0)])
def test_what_makes_no_sense_is_refused(arguments):
  with pytest.raises(ValueError, match=r'(num_clients|mu|mean_examples) must be'):
    corrections.FedDyn(*arguments)


def test_the_registry_configures_it_with_and_without_the_clients_sizes():
  clients = corrections.RegisteredClients(7, 5.5)
  plain = corrections.FedDyn.configure({'mu': 0.2, 'scale_mu': False}, clients)
  assert plain == corrections.FedDyn(0.2, 7, None)
  scaled = corrections.FedDyn.configure({'mu': 0.2, 'scale_mu': True}, clients)
  assert scaled == corrections.FedDyn(0.2, 7, 5.5)
