"""The server's part of a correction by itself; its metrics are in corrections_oracle_test."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import corrections
from tff_adaptive.algorithms import client_training, components, server_correction
from tff_adaptive.client import ClientTraining, local_training
from tff_adaptive.corrections import base

WEIGHTS = tff.learning.models.ModelWeights((np.float32([3, 4]),), ())
BEFORE = tff.learning.models.ModelWeights((np.float32([30, 40]),), ())  # theta-bar^{t-1}.
W = tff.types.to_type(tff.learning.models.ModelWeights(((np.float32, [2]),), ()))
G = tff.types.to_type(((np.float32, [2]),))
H = collections.OrderedDict(h=(np.float32([1, 2]),))
H_TYPE = tff.types.to_type(collections.OrderedDict(h=((np.float32, [2]),)))
MESSAGE = local_training.Message(np.int32(3), np.float32(0.1))
MESSAGE_TYPE = local_training.Message(np.int32, np.float32)


def build(correction, upload_type):
  """`build_update` of a correction alone."""
  recipe = components.Recipe(None, ClientTraining(), correction, None, 0.1, None, 'uniform')
  drift = collections.OrderedDict(weight=np.float32)
  totals = client_training.Totals(upload_type, (), *[np.float32] * 4, drift)
  message, totals = map(tff.types.to_type, (MESSAGE_TYPE, totals))
  return server_correction.build_update(recipe, H_TYPE, message, W, W, G, totals)


def totals(uploads, used):
  numbers = map(np.float32, (used, 0, 0, 0))
  return client_training.Totals(
    uploads, (), *numbers, collections.OrderedDict(weight=np.float32(6))
  )


@pytest.mark.parametrize(('combine', 'sent'), [('mean', 3), ('weighted', 6), ('sum', 1)])
def test_uploads_are_combined_as_the_correction_says(graph, combine, sent):
  """Over the clients that count, three of them."""

  class Sends(corrections.Scaffold):
    combine_uploads = combine

  update = build(Sends(10), G)
  g_bar = (np.float32([0.5, 1]),)
  uploads = (sent * np.float32([2, 4]),)
  updated = engines.run(graph, update, H, MESSAGE, WEIGHTS, BEFORE, g_bar, totals(uploads, 3))
  # h + |S|/N uploads, the direction g-bar, theta - g-bar.
  np.testing.assert_allclose(updated.correction['h'][0], [1 + 0.3 * 2, 2 + 0.3 * 4], rtol=1e-6)
  np.testing.assert_array_equal(updated.direction[0], [0.5, 1])
  np.testing.assert_array_equal(updated.theta_bar[0], [2.5, 3])
  assert updated.round_number == 3
  assert base.mean(tf.constant(3), tf.constant(2.0)).numpy() == 1.5


def test_another_combination_of_uploads_is_refused():
  class Median(corrections.Scaffold):
    combine_uploads = 'median'

  with pytest.raises(ValueError, match="Median has combine_uploads 'median': give 'mean', 'wei"):
    build(Median(10), G)


def test_what_is_said_of_a_round_is_of_its_clients_that_count():
  drift = {'weight': 6.0, 'weighted_square': 150.0, 'h_i_norm': 9.0, 'first_time_clients': 2.0}
  of_round = client_training.Totals((), (), *map(tf.constant, (3.0, 1.0, 12.0, 66.0)), drift)
  g_bar = (tf.constant([3.0, 0.0]),)
  theta = (tf.constant([3.0, 4.0]),)
  h = (tf.constant([0.0, 2.0]),)
  described = server_correction._describe_updates(of_round)
  described.update(server_correction._describe_drift(of_round, g_bar, theta, {'h': h}))
  wanted = {'update_norm_mean': 4, 'update_norm_std': 6**0.5, 'non_finite_clients': 1}
  wanted |= {'update_spread': 4, 'aggregate_norm': 3, 'theta_norm': 5, 'h_norm': 2}
  wanted |= {'h_i_norm_mean': 3, 'first_time_clients': 2}
  assert {name: float(value) for name, value in described.items()} == pytest.approx(wanted)
  cosines = [server_correction._cosine(each, theta) for each in (g_bar, (), (tf.zeros([2]),))]
  np.testing.assert_allclose(cosines, [0.6, 0, 0], rtol=1e-6)


@pytest.mark.parametrize(('value', 'used'), [(0.5, 0), (np.nan, 2), (np.inf, 2)])
def test_a_round_without_a_usable_update_changes_nothing(graph, value, used):
  class Ratio(corrections.FedDyn):
    def server_update(self, server_state, server):
      return *super().server_update(server_state, server), server.g_bar[0][1]

  update = build(Ratio(0.1, 10), ())
  g_bar = (np.float32([0.5, value]),)
  updated = engines.run(graph, update, H, MESSAGE, WEIGHTS, BEFORE, g_bar, totals((), used))
  np.testing.assert_array_equal(updated.correction['h'][0], H['h'][0])
  np.testing.assert_array_equal(updated.theta_bar[0], [30, 40])
  assert np.isnan(updated.direction[0]).all()  # Which the finalizer refuses.
  assert updated.factor == 1
  assert updated.round_number == 3
