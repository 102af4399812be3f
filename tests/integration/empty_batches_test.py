"""A batch without examples is no local step: a round equals the one without such batches."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, corrections, engine, models

X, Y = small_problem.clients(5, [10])[0]


def _batch(start, stop):
  return collections.OrderedDict(x=X[start:stop], y=Y[start:stop])


# Clients' batches, from row to row.
WITH_EMPTY = [[(0, 0), (0, 3), (3, 3), (3, 6), (6, 6)], [(6, 6)], [(6, 8), (8, 10)]]
WITHOUT = [[(0, 3), (3, 6)], [], [(6, 8), (8, 10)]]
MODELS = {
  'own': small_problem.linear_model,
  'keras': lambda: small_problem.keras_model,
}


def _round(process, clients):
  """The state, the clients' states and the metrics after two rounds."""
  cohort = [list(itertools.starmap(_batch, client)) for client in clients]
  state = process.initialize()
  client_states = ()
  with engine.graph_context():
    if hasattr(process, 'initial_client_state'):
      client_states = [process.initial_client_state] * len(cohort)
      for _ in range(2):
        state, client_states, metrics = process.next(state, client_states, cohort)
    else:
      for _ in range(2):
        output = process.next(state, cohort)
        state = output.state
        metrics = output.metrics
  return state, client_states, metrics


@pytest.mark.sample(1)
@pytest.mark.parametrize(
  ('name', 'model'),
  [
    ('fed_avg', 'own'),
    pytest.param('scaffold', 'keras', marks=pytest.mark.exhaustive),
    ('fed_nova', 'own'),
    pytest.param('mime', 'keras', marks=pytest.mark.exhaustive),
    pytest.param('fed_avg', 'keras', marks=pytest.mark.exhaustive),
    pytest.param('scaffold', 'own', marks=pytest.mark.exhaustive),
  ],
)
def test_a_round_is_the_one_without_them(name, model):
  clients = None
  values = {}
  if name == 'scaffold':
    clients = corrections.RegisteredClients(3, 10 / 3)
    values = {'scaffold_option': 1}  # It takes full gradients.
  process = algorithms.build_process(
    name,
    MODELS[model](),
    client_learning_rate=0.1,
    clients=clients,
    values=values,
  )
  with engine.graph_context():
    actual = _round(process, WITH_EMPTY)
    wanted = _round(process, WITHOUT)
  engines.assert_same(actual, wanted, rtol=0, atol=0)
  assert np.isfinite(actual[2]['client_work']['train']['loss'])


def test_rows_that_a_filter_leaves_out_after_batching_are_no_step():
  """Only the client's three batches with labels of class 0 are steps; the rest are empty."""
  labels = np.array([0, 0, 1, 1, 0, 1, 2, 2, 0, 0], np.int32)
  data = tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=X, y=labels)).batch(2)

  def of_class_0(batch):
    return collections.OrderedDict((k, v[batch['y'] == 0]) for k, v in batch.items())

  rows = [[0, 1], [4], [8, 9]]
  by_hand = [collections.OrderedDict(x=X[r], y=labels[r]) for r in rows]
  process = algorithms.build_process(
    'fed_nova', small_problem.linear_model(), client_learning_rate=0.1
  )
  with engine.graph_context():
    start = process.initialize()
    actual = process.next(start, [data.map(of_class_0)])
    wanted = process.next(start, [by_hand])
  engines.assert_same(actual, wanted, rtol=1e-6)


def test_tffs_fed_avg_trains_this_projects_models_past_them():
  model = models.from_keras(
    lambda: tf.keras.Sequential([tf.keras.Input([5]), tf.keras.layers.Dense(3)]),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  process = tff.learning.algorithms.build_weighted_fed_avg(
    model, tff.learning.optimizers.build_sgdm(0.1)
  )
  actual = _round(process, WITH_EMPTY[::2])
  wanted = _round(process, WITHOUT[::2])
  engines.assert_same(actual[0].global_model_weights, wanted[0].global_model_weights)
  trained = (result[2]['client_work']['train'] for result in (actual, wanted))
  engines.assert_same(*trained)
