"""FedProx's formula; ten rounds of it are in corrections_oracle_test."""

import pytest

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections, registry

G, THETA = inputs.weights(6), inputs.weights(7)


def test_the_gradient_of_the_penalty_is_added():
  client = inputs.client_round()
  found = corrections.FedProx(0.3).gradient(client, THETA, G)
  trees = zip(G, THETA, client.theta_0)
  inputs.assert_close(found, [g + 0.3 * (x - x0) for g, x, x0 in trees])
  assert corrections.FedProx(0.0).gradient(client, THETA, G) is G  # FedAvg, and no operation.


def test_mu_is_checked_and_has_the_registrys_default():
  assert corrections.FedProx().mu == registry.ALGORITHMS['fed_prox'].default('mu')
  with pytest.raises(ValueError, match='mu must be finite and at least 0, found -1'):
    corrections.FedProx(-1.0)
