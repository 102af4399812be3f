"""The server's part of a correction, each computation by itself."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import corrections
from tff_adaptive.algorithms import server_correction

WEIGHTS = tff.learning.models.ModelWeights((np.float32([3, 4]),), ())
BEFORE = tff.learning.models.ModelWeights((np.float32([30, 40]),), ())  # theta-bar^{t-1}.
W = tff.types.to_type(tff.learning.models.ModelWeights(((np.float32, [2]),), ()))
G = tff.types.to_type(((np.float32, [2]),))
DYN, MEAN_UPLOAD = corrections.FedDyn(0.1, 10), corrections.Scaffold(10)
H = collections.OrderedDict(h=(np.float32([1, 2]),))
H_TYPE = tff.types.to_type(collections.OrderedDict(h=((np.float32, [2]),)))


def sums(used, **given):
  values = dict(used=used, diverged=0, norm=0, squared_norm=0, **given)
  return collections.OrderedDict((name, np.float32(value)) for name, value in values.items())


def test_clients_receive_the_round_its_rate_and_what_the_correction_sends(graph):
  message = server_correction.build_message(MEAN_UPLOAD, lambda t: 0.5 / (1 + t), H_TYPE)
  t, rate, (h,) = engines.run(graph, message, 3, H)
  assert (t, rate) == (4, 0.125)
  np.testing.assert_array_equal(h, [1, 2])


def test_uploads_are_averaged_over_the_clients_that_count(graph):
  update = server_correction.build_update(MEAN_UPLOAD, H_TYPE, W, G, G)
  g_bar, uploads = (np.float32([0.5, 1]),), (np.float32([6, 12]),)
  found = engines.run(graph, update, H, 2, WEIGHTS, BEFORE, g_bar, uploads, sums(3))
  # h + |S|/N mean(uploads), the direction g-bar, theta - g-bar.
  np.testing.assert_allclose(found.correction['h'][0], [1 + 0.3 * 2, 2 + 0.3 * 4], rtol=1e-6)
  np.testing.assert_array_equal(found.direction[0], [0.5, 1])
  np.testing.assert_array_equal(found.inference_weights.trainable[0], [2.5, 3])
  assert found.round_number == 3


@pytest.mark.parametrize(('value', 'used'), [(0.5, 0), (np.nan, 2), (np.inf, 2)])
def test_a_round_without_a_usable_update_changes_nothing(graph, value, used):
  update = server_correction.build_update(DYN, H_TYPE, W, G, tff.types.to_type(()))
  g_bar = (np.float32([0.5, value]),)
  found = engines.run(graph, update, H, 2, WEIGHTS, BEFORE, g_bar, (), sums(used))
  np.testing.assert_array_equal(found.correction['h'][0], H['h'][0])
  np.testing.assert_array_equal(found.inference_weights.trainable[0], [30, 40])
  assert np.isnan(found.direction[0]).all()  # Which the finalizer refuses.
  assert found.round_number == 3


def test_the_metrics_describe_updates_and_drift(graph):
  drift_names = ('h_i_norm', 'first_time_clients', 'weight', 'weighted_square')
  drift = collections.OrderedDict(zip(drift_names, np.float32([6, 1, 4, 4 * 25])))
  drift_type = tff.types.to_type(collections.OrderedDict.fromkeys(drift_names, np.float32))
  describe = server_correction.build_describe(DYN, H_TYPE, W, G, drift_type)
  given = collections.OrderedDict(
    zip(('used', 'diverged', 'norm', 'squared_norm'), np.float32([3, 1, 15, 3 * 29]))
  )
  found = engines.run(graph, describe, H, WEIGHTS, (np.float32([0, 4]),), given, drift)
  assert {name: float(value) for name, value in found.items()} == pytest.approx(
    {
      'update_norm_mean': 5,
      'update_norm_std': 2,
      'update_spread': 3,  # sqrt(25 - 16).
      'non_finite_clients': 1,
      'aggregate_norm': 4,
      'theta_norm': 5,
      'h_norm': np.sqrt(5),
      'h_i_norm_mean': 2,
      'first_time_clients': 1,
    }
  )


def test_the_servers_state_begins_from_the_weights(graph):
  class Keeps(corrections.Correction):
    def server_state(self, weights):
      return tuple(2 * w for w in weights)

  (found,) = engines.run(graph, server_correction.build_initialize(Keeps(), W), WEIGHTS)
  np.testing.assert_array_equal(found, [6, 8])
  assert tf.nest.flatten(DYN.server_state(WEIGHTS.trainable))[0].shape == [2]
