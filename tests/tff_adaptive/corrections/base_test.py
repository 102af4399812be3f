"""What all corrections share: the one that corrects nothing, and sums over weights."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections
from tff_adaptive.corrections import base

W = inputs.weights(6)


def test_the_base_class_is_fed_avg_without_a_state():
  correction = corrections.Correction()
  assert (correction.name, correction.keeps_client_state()) == ('none', False)
  client = inputs.client_round(client_state='as it was')
  assert correction.client_state(W) == correction.server_state(W) == correction.broadcast(()) == ()
  assert correction.gradient(client, inputs.weights(7), W) is W
  assert correction.client_update(client, W, tf.constant(4.0)) == ('as it was', ())
  server = inputs.server_round()
  state, direction = correction.server_update('state', server)
  assert state == 'state'
  assert direction is server.g_bar
  for kind in (corrections.FedProx, corrections.AdaBest):  # They are it where mu is 0.
    gradients = [
      kind(mu).gradient(inputs.client_round(), inputs.weights(7), W) for mu in (0.0, 1.0)
    ]
    assert [g is W for g in gradients] == [True, False]


def test_the_estimate_of_the_metrics_is_the_field_h_if_there_is_one():
  assert base.estimate({'h': list(W), 'rounds': 3}) == W
  assert base.estimate(collections.namedtuple('State', 'h rounds')(W, 3)) == W
  (estimate,) = base.estimate({'h': W[0]})
  assert estimate is W[0]
  for state in ({'rounds': 3}, W[0], (W[0], 3), ()):
    assert base.estimate(state) == ()


def test_a_field_named_as_a_fact_of_the_clients_is_filled_in():
  @dataclasses.dataclass(frozen=True)
  class Needs(corrections.Correction):
    strength: float = 0.1
    mean_examples: float = 0.0

  clients = corrections.RegisteredClients(7, 5.5)
  assert Needs.configure({'strength': 0.2}, clients) == Needs(0.2, 5.5)
  for bad in (None, 7, (7, 5.5)):
    with pytest.raises(ValueError, match='needs to know the registered clients'):
      Needs.configure({'strength': 0.2}, bad)
  assert isinstance(corrections.Correction.configure({}), corrections.Correction)


@pytest.mark.parametrize('dtype', [tf.float16, tf.float32, tf.float64])
def test_a_factor_is_one_number_or_one_for_each_client(dtype):
  weights = [tf.cast(w, dtype) for w in inputs.weights(6, 3)]
  factors = np.array([2.0, 0.0, -0.5])
  for w in weights:
    scaled = base.scale(tf.constant(0.25), w)
    assert scaled.dtype == dtype
    np.testing.assert_array_equal(scaled, 0.25 * w.numpy())
    scaled = base.scale(tf.constant(factors, tf.float32), w)
    np.testing.assert_array_equal(scaled, [f * one for f, one in zip(factors, w.numpy())])


def test_norms_are_those_of_all_weights_together():
  group = inputs.weights(6, 3)
  squares = []
  for i in range(3):
    weights = [w[i] for w in group]
    squares.append(sum(float(np.sum(w**2)) for w in weights))
    assert float(base.squared_norm(weights)) == pytest.approx(squares[i], rel=1e-6)
  np.testing.assert_allclose(base.squared_norm(group, 3), squares, rtol=1e-6)
  norms = tf.vectorized_map(base.norm, group, fallback_to_while_loop=False)  # No loop.
  np.testing.assert_allclose(norms, np.sqrt(squares), rtol=1e-6)
  assert base.squared_norm((tf.constant([3, 4], tf.int64),)) == 25
  assert base.squared_norm(()).shape == ()
  np.testing.assert_array_equal(base.squared_norm((), 3), np.zeros(3))


@pytest.mark.parametrize('group', [None, 2])
def test_norms_are_float32_and_16_bits_neither_overflow_nor_vanish(group):
  for dtype in tf.float16, tf.bfloat16, tf.float64:
    for value in 300.0, 2.0**-13:
      norm = base.squared_norm((tf.fill([2, 4], tf.cast(value, dtype)),), group)
      assert norm.dtype == tf.float32
      size = 8 if group is None else 4
      np.testing.assert_allclose(norm, size * value**2, rtol=1e-2)
