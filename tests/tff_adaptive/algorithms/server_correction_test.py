"""The server's part of a correction by itself; its metrics are in corrections_oracle_test."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.helpers import engines
from tff_adaptive import corrections
from tff_adaptive.algorithms import components, server_correction
from tff_adaptive.client import ClientTraining, local_training

WEIGHTS = tff.learning.models.ModelWeights((np.float32([3, 4]),), ())
BEFORE = tff.learning.models.ModelWeights((np.float32([30, 40]),), ())  # theta-bar^{t-1}.
W = tff.types.to_type(tff.learning.models.ModelWeights(((np.float32, [2]),), ()))
G = tff.types.to_type(((np.float32, [2]),))
H = collections.OrderedDict(h=(np.float32([1, 2]),))
H_TYPE = tff.types.to_type(collections.OrderedDict(h=((np.float32, [2]),)))


MESSAGE = local_training.Message(np.int32(3), np.float32(0.1))
MESSAGE_TYPE = local_training.Message(np.int32, np.float32)
DRIFT = collections.OrderedDict(weight=np.float32(6))


def build(correction, upload_type):
  """`build_update` of a correction alone."""
  recipe = components.Recipe(None, ClientTraining(), correction, None, 0.1, None, 'uniform')
  trained = tff.types.to_type(collections.OrderedDict(upload=upload_type, optimizer=()))
  return server_correction.build_update(
    recipe,
    H_TYPE,
    tff.types.to_type(MESSAGE_TYPE),
    W,
    W,
    G,
    trained,
    tff.types.to_type(collections.OrderedDict(weight=np.float32)),
  )


def sums(used, **given):
  values = dict(used=used, diverged=0, norm=0, squared_norm=0, **given)
  return collections.OrderedDict((name, np.float32(value)) for name, value in values.items())


@pytest.mark.parametrize(('combine', 'sent'), [('mean', 3), ('weighted', 6), ('sum', 1)])
def test_uploads_are_combined_as_the_correction_says(graph, combine, sent):
  """Over the clients that count, three of them."""

  class Sends(corrections.Scaffold):
    combine_uploads = combine

  update = build(Sends(10), G)
  g_bar, uploads = (np.float32([0.5, 1]),), (sent * np.float32([2, 4]),)
  found = engines.run(
    graph, update, H, MESSAGE, WEIGHTS, BEFORE, g_bar, uploads, (), sums(3), DRIFT
  )
  # h + |S|/N uploads, the direction g-bar, theta - g-bar.
  np.testing.assert_allclose(found.correction['h'][0], [1 + 0.3 * 2, 2 + 0.3 * 4], rtol=1e-6)
  np.testing.assert_array_equal(found.direction[0], [0.5, 1])
  np.testing.assert_array_equal(found.theta_bar[0], [2.5, 3])
  assert found.round_number == 3


@pytest.mark.parametrize(('value', 'used'), [(0.5, 0), (np.nan, 2), (np.inf, 2)])
def test_a_round_without_a_usable_update_changes_nothing(graph, value, used):
  class Ratio(corrections.FedDyn):
    def server_update(self, server_state, server):
      return *super().server_update(server_state, server), server.g_bar[0][1]

  update = build(Ratio(0.1, 10), ())
  g_bar = (np.float32([0.5, value]),)
  found = engines.run(graph, update, H, MESSAGE, WEIGHTS, BEFORE, g_bar, (), (), sums(used), DRIFT)
  np.testing.assert_array_equal(found.correction['h'][0], H['h'][0])
  np.testing.assert_array_equal(found.theta_bar[0], [30, 40])
  assert np.isnan(found.direction[0]).all()  # Which the finalizer refuses.
  assert found.factor == 1
  assert found.round_number == 3
