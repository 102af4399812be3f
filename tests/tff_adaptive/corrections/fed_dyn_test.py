"""FedDyn's mu; ten rounds of its formulas are in corrections_oracle_test."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections

G, THETA = inputs.weights(6), inputs.weights(7)


def test_mu_of_an_unbalanced_client_goes_with_the_inverse_of_its_examples():
  sizes = np.array([8.0, 2.0, 0.0], np.float32)
  client = inputs.client_round(3, num_examples=tf.constant(sizes))
  g, theta = inputs.weights(6, 3), inputs.weights(7, 3)
  found = corrections.FedDyn(0.3, 10, mean_examples=4.0).gradient(client, theta, g)
  mu = np.array([0.15, 0.6, 0.0])  # Who has no examples takes no steps: any finite number will do.
  trees = zip(g, client.client_state['h'], client.theta_0, theta)
  wanted = [g - inputs.per_client(mu, g) * (h + x0 - x) for g, h, x0, x in trees]
  inputs.assert_close(found, wanted)


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
