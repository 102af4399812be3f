"""A client's round as a computation: its weight in the mean, and what describes its estimate."""

import collections

import numpy as np
import pytest
import tensorflow_federated as tff

from tests.helpers import engines, oracle, small_problem
from tff_adaptive import corrections, optimizers
from tff_adaptive.algorithms import client_training, components
from tff_adaptive.client import Batching, ClientTraining, model_adapters

DATA = small_problem.clients()
WEIGHTS = tff.learning.models.ModelWeights(tuple(oracle.unpack(small_problem.theta_0())), ())


def recipe(correction, weighting):
  return components.Recipe(
    model_adapters.wrap(small_problem.model()),
    ClientTraining(batching=Batching(4)),
    correction,
    optimizers.build_sgdm(1.0),
    0.2,
    None,
    weighting,
  )


def build(correction, weighting, message_type, state_type=None):
  made = recipe(correction, weighting)
  weights_type = components.initial_weights(made.model).type_signature.result
  return client_training.build(made, weights_type, message_type, state_type)


@pytest.mark.parametrize(
  ('weighting', 'weight'),
  [('examples', 11), ('uniform', 1), (lambda metrics: 3 * metrics['accuracy'][..., 1], 33)],
)
def test_a_client_without_a_state_gives_its_update_and_weight(graph, weighting, weight):
  message_type = tff.types.to_type((np.int32, np.float32, ()))
  train = build(corrections.Correction(), weighting, message_type)
  message, data = (np.int32(1), np.float32(0.2), ()), small_problem.element(DATA[1], 1)
  found = engines.run(graph, train, message, WEIGHTS, data)
  assert found.result.update_weight == weight
  assert len(found.trained.update) == len(found.drift) == 0
  norm = np.linalg.norm(oracle.pack(found.result.update))
  assert float(found.trained.squared_norm) == pytest.approx(norm**2, rel=1e-5)
  empty = small_problem.element(tuple(a[:0] for a in DATA[1]), 1)
  assert engines.run(graph, train, message, WEIGHTS, empty).result.update_weight == 0


def test_a_client_with_a_state_describes_its_estimate(graph):
  correction = corrections.FedDyn(0.1, 7)
  state_type = tff.types.to_type(
    collections.OrderedDict(h=tuple((np.float32, shape) for shape in oracle.SHAPES))
  )
  message_type = tff.types.to_type((np.int32, np.float32, ()))
  train = build(correction, 'examples', message_type, state_type)
  for h, is_new in ((np.zeros(39), 1), (np.ones(39), 0)):
    state = collections.OrderedDict(h=tuple(w.astype(np.float32) for w in oracle.unpack(h)))
    data = small_problem.element(DATA[1], 1)
    found = engines.run(graph, train, (1, 0.2, ()), WEIGHTS, state, data)
    g_i = oracle.pack(found.result.update)
    after = oracle.pack(found.trained.client_state['h'])
    np.testing.assert_allclose(after, h + g_i, rtol=1e-5)
    assert {name: float(value) for name, value in found.drift.items()} == pytest.approx(
      {
        'h_i_norm': np.linalg.norm(after),
        'first_time_clients': is_new,
        'weight': 11,
        'weighted_square': 11 * np.sum(g_i**2),
      },
      rel=1e-5,
    )
