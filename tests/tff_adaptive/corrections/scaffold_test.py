"""SCAFFOLD's and SCAFFOLD/m's formulas; ten rounds of them are in corrections_oracle_test."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections, registry

BOTH = (corrections.Scaffold, corrections.ScaffoldM)
G, H = inputs.weights(6), inputs.weights(8)


def _option_two(client, g_i, steps):
  quotient = [g / (steps * 0.125) for g in g_i]
  trees = zip(client.client_state['h'], client.broadcast, quotient)
  return [h_i - h + q for h_i, h, q in trees], quotient


@pytest.mark.parametrize('kind', BOTH)
def test_control_variates_start_at_zero_and_shift_the_gradient(kind):
  correction = kind(12)
  for state in correction.client_state(G), correction.server_state(G):
    assert list(state) == ['h']
    inputs.assert_close(state['h'], [np.zeros_like(w) for w in G])
  assert correction.broadcast({'h': H}) is H
  client = inputs.client_round(broadcast=H)
  found = correction.gradient(client, inputs.weights(7), G)
  trees = zip(G, client.client_state['h'], H)
  inputs.assert_close(found, [g - h_i + h for g, h_i, h in trees])
  norm = np.sqrt(sum(np.sum(h * h) for h in H))
  assert float(correction.h_norm({'h': H})) == pytest.approx(norm, rel=1e-6)
  with pytest.raises(ValueError, match='num_clients must be at least 1, found 0'):
    kind(0)
  assert kind(1).is_stateful


def test_option_one_renews_by_the_full_gradient_and_sends_the_change():
  client = inputs.client_round(broadcast=H)
  state, change = corrections.Scaffold(12, 1).client_update(client, G, tf.constant(4.0))
  assert list(state) == ['h']
  inputs.assert_close(state['h'], inputs.weights(3))
  trees = zip(inputs.weights(3), client.client_state['h'])
  inputs.assert_close(change, [new - old for new, old in trees])


def test_option_two_renews_by_the_steps_taken_at_this_rounds_rate():
  client = inputs.client_round(broadcast=H)
  wanted, quotient = _option_two(client, G, 4.0)
  state, change = corrections.Scaffold(12, 2).client_update(client, G, tf.constant(4.0))
  inputs.assert_close(state['h'], wanted)
  inputs.assert_close(change, [new - h for new, h in zip(wanted, client.client_state['h'])])
  state, sent = corrections.ScaffoldM(12).client_update(client, G, tf.constant(4.0))
  assert list(state) == ['h']
  inputs.assert_close(state['h'], wanted)
  inputs.assert_close(sent, quotient)


@pytest.mark.parametrize('kind', BOTH)
def test_a_client_without_steps_divides_by_nothing(kind):
  client = inputs.client_round(broadcast=H)
  zero = tuple(np.zeros_like(g) for g in G)
  state, upload = kind(12).client_update(client, zero, tf.constant(0.0))
  for leaf in (*state['h'], *upload):
    assert np.isfinite(leaf).all()


def test_the_server_moves_by_the_share_of_the_cohort():
  server = inputs.server_round()
  new, direction = corrections.Scaffold(12).server_update({'h': H}, server)
  inputs.assert_close(new['h'], [h + 3 / 12 * d for h, d in zip(H, server.uploads)])
  assert direction is server.g_bar
  new, direction = corrections.ScaffoldM(12).server_update({'h': H}, server)
  trees = zip(H, server.uploads)
  inputs.assert_close(new['h'], [(12 - 3) / 12 * h + 3 / 12 * g for h, g in trees])
  assert direction is server.g_bar


def test_the_option_is_one_or_two_and_by_default_the_registrys():
  default = registry.ALGORITHMS['scaffold'].default('scaffold_option')
  assert corrections.Scaffold(12).scaffold_option == default
  with pytest.raises(ValueError, match='scaffold_option must be 1 or 2, found 3'):
    corrections.Scaffold(12, 3)
