"""Which optimizers are plain SGD, and what is done for others."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import client_optimizer

RATE = 0.125


class Sign(tff.learning.optimizers.Optimizer):
  """Moves by the gradient's sign; its state is that of plain SGD."""

  def initialize(self, specs):
    return collections.OrderedDict(learning_rate=RATE)

  def next(self, state, weights, gradients):
    rate = state['learning_rate']
    return state, tf.nest.map_structure(lambda w, g: w - rate * tf.sign(g), weights, gradients)

  def get_hparams(self, state):
    return collections.OrderedDict(state)

  def set_hparams(self, state, hparams):
    return collections.OrderedDict(hparams)


@pytest.mark.parametrize(
  ('optimizer', 'is_sgd', 'num_slots'),
  [
    (tff.learning.optimizers.build_sgdm(RATE), True, 0),
    (tff.learning.optimizers.build_sgdm(RATE, 0.0), True, 0),
    (tff.learning.optimizers.build_sgdm(RATE, 0.9), False, 1),
    (tff.learning.optimizers.build_adagrad(RATE), False, 1),
    (Sign(), False, 0),
  ],
)
def test_plain_sgd_is_known(optimizer, is_sgd, num_slots):
  assert client_optimizer.is_sgd(optimizer) == is_sgd
  with tf.Graph().as_default():
    optimizer_of_client = client_optimizer.ClientOptimizer(
      optimizer, (tf.zeros([2, 3]),), tf.constant(RATE)
    )
  assert len(optimizer_of_client.slots) == num_slots


def test_another_optimizer_that_keeps_nothing_takes_its_own_steps():
  w = (tf.constant([1.0, 2.0]),)
  g = (tf.constant([30.0, -0.1]),)
  slots, (moved,) = client_optimizer.ClientOptimizer(Sign(), w, tf.constant(0.5)).next((), w, g)
  assert slots == ()
  np.testing.assert_array_equal(moved, [0.5, 2.5])


def test_a_client_optimizer_whose_rate_cannot_be_set_is_refused():
  scheduled = tff.learning.optimizers.schedule_learning_rate(
    tff.learning.optimizers.build_sgdm(0.1), lambda t: 0.1
  )
  with pytest.raises(ValueError, match='no learning rate that can be set'):
    client_optimizer.ClientOptimizer(scheduled, (tf.zeros([2]),), tf.constant(0.2))
