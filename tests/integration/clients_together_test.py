"""Clients train together only where the numbers are those of one after another."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive import Batching, algorithms, engine, models
from tff_adaptive.client import ClientTraining, whole_client


class Normalized(tff.learning.optimizers.Optimizer):
  """Keeps nothing but its rate; each step has that length."""

  def initialize(self, specs):
    del specs
    return {tff.learning.optimizers.LEARNING_RATE_KEY: tf.constant(0.1)}

  def next(self, state, weights, gradients):
    rate = state[tff.learning.optimizers.LEARNING_RATE_KEY] / tf.linalg.global_norm(gradients)
    return state, tf.nest.map_structure(lambda w, g: w - rate * g, weights, gradients)

  def get_hparams(self, state):
    return state

  def set_hparams(self, state, hparams):
    del state
    return hparams


def theta(process, data, clients_per_step):
  with engine.graph_context(clients_per_step=clients_per_step):
    output = process.next(process.initialize(), data)
  return [np.asarray(w) for w in output.state.global_model_weights.trainable]


def test_an_optimizer_that_looks_at_all_weights_at_once():
  training = ClientTraining(Normalized(), Batching(4))
  process = algorithms.build_fed_avg(
    small_problem.model(), client_learning_rate=0.2, training=training
  )
  clients = small_problem.clients()
  data = [small_problem.element(clients[i], i) for i in range(4)]
  for alone, together in zip(theta(process, data, 1), theta(process, data, 2), strict=True):
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize('of_labels', [False, True])
def test_examples_whose_shape_differs_from_client_to_client(of_labels):
  rows = tf.TensorSpec([None, None], tf.float32)
  column = tf.TensorSpec([None, 1], tf.float32)
  model = models.Model(
    initial_weights=[np.float32([0.5])],
    forward=lambda weights, x, training, seed: tf.reduce_mean(x, 1, keepdims=True) * weights[0],
    example_loss=lambda y, outputs: tf.reduce_mean((y - outputs) ** 2, 1),
    x_spec=column if of_labels else rows,
    y_spec=rows if of_labels else column,
  )
  process = algorithms.build_fed_avg(
    model, client_learning_rate=0.1, training=ClientTraining(batching=Batching(2))
  )
  rng = np.random.default_rng(0)
  data = []
  for number, width in enumerate((2, 3)):
    wide, narrow = rng.random((4, width), np.float32), rng.random((4, 1), np.float32)
    x, y = (narrow, wide) if of_labels else (wide, narrow)
    data.append(whole_client.client_arrays(x, y, number))
  np.testing.assert_array_equal(theta(process, data, 1), theta(process, data, 2))
