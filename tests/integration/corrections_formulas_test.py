"""Corrections by themselves: defaults, ranges; their formulas are in vectors_test."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections, registry
from tff_adaptive.corrections import base
from tff_adaptive.registry import entries

G = inputs.weights(6)


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_defaults_are_the_registrys(name):
  entry = registry.ALGORITHMS[name]
  kind = entries.resolve(entry.correction)
  if dataclasses.is_dataclass(kind):
    fields = dataclasses.fields(kind)
  else:
    fields = ()
  assert not fields or kind.__dataclass_params__.frozen
  defaults = {field.name: field.default for field in fields}
  for h in () if entry.settings else entry.hyperparameters:
    assert defaults.get(h.name, h.default) in (h.default, dataclasses.MISSING)


@pytest.mark.parametrize(
  'make, words',
  [
    (lambda: corrections.FedProx(-1.0), 'mu must be finite and at least 0, found -1'),
    (lambda: corrections.FedDyn(0.1, 0), 'num_clients must be at least 1, found 0'),
    (lambda: corrections.FedDyn(-0.1, 3), 'mu must be finite and at least 0, found -0.1'),
    (lambda: corrections.FedDyn(0.1, 3, 0.0, True), 'mean_examples must be finite and above 0'),
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


def test_beta_falls_while_h_stays_as_it_is():
  correction = corrections.AdaBest(beta=0.8, beta_decay=0.5, plateau_rounds=2)
  server = inputs.server_round(g_bar=base.zeros(G), uploads=tf.constant(4.0))
  states = [correction.server_state(G)]
  for _ in range(5):
    states.append(correction.server_update(states[-1], server)[0])
  np.testing.assert_allclose([s['beta'] for s in states], [0.8, 0.8, 0.8, 0.4, 0.4, 0.2])
  assert corrections.AdaBest().plateau_rounds == 50


@pytest.mark.parametrize(
  'correction, broadcast',
  [
    (corrections.Scaffold(12), G),
    (corrections.ScaffoldM(12), G),
    (corrections.FedDyn(0.3, 10, mean_examples=4.0, scale_mu=True), ()),
    (corrections.AdaBest(mu=0.3, scale_mu=True), tf.constant(4.0)),
  ],
)
def test_a_client_without_examples_and_steps_divides_by_nothing(correction, broadcast):
  state = correction.client_state(G)
  none = tf.constant(0.0)
  client = inputs.client_round(client_state=state, num_examples=none, broadcast=broadcast)
  moved = tuple(np.zeros_like(g) for g in G)
  results = correction.gradient(client, G, G), correction.client_update(client, moved, none)
  for leaf in tf.nest.flatten(results):
    assert np.isfinite(leaf).all()
