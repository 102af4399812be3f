"""The factor p of Scaffnew's control variates."""

import numpy as np
import pytest
import tensorflow as tf

import oracle
from oracle import methods
from tests.helpers import correction_inputs as inputs, small_problem
from tff_adaptive import algorithms, corrections, engine
from tff_adaptive._utils import seeds
from tff_adaptive.client import Batching, ClientTraining


@pytest.mark.parametrize('mean_steps, p', [(10.0, 1 / 10), (None, 1 / 4)])
def test_p_is_one_over_the_mean_number_of_steps_not_over_the_drawn_one(mean_steps, p):
  """h_i <- h_i + p / eta_l (x+ - y_i), as Algorithm 2 of Mishchenko et al.; 4 steps were drawn."""
  x = inputs.weights(0)
  h = inputs.weights(1)
  x_next = inputs.weights(2)
  d_i = inputs.weights(3)
  correction = corrections.Scaffnew()
  state = dict(correction.client_state(x), h=h)
  client = inputs.client_round(theta_0=x, client_state=state, mean_steps=mean_steps)
  state['scale'] = tf.zeros([])  # There was no round before.
  after, _ = correction.client_update(client, d_i, tf.constant(4.0))
  # The client makes the update when it takes part again, with the model that it then receives.
  again = inputs.client_round(theta_0=x_next, client_state=after, mean_steps=mean_steps)
  renewed = correction.local_state(again)
  for tensor in range(len(h)):
    y = np.float64(x[tensor]) - np.float64(d_i[tensor])
    expected = np.float64(h[tensor]) + p / 0.125 * (np.float64(x_next[tensor]) - y)
    np.testing.assert_allclose(renewed[tensor], expected, rtol=1e-5, atol=1e-6)


def test_with_drawn_steps_rounds_equal_the_paper_with_one_over_their_mean_as_p():
  """Algorithm 2 of the paper by the oracle, given the numbers of steps that the rounds draw."""
  batching = Batching(None, local_steps=4, random_local_steps=True)
  process = algorithms.build_process(
    'scaffnew',
    small_problem.model(),
    client_learning_rate=0.125,
    training=ClientTraining(batching=batching, seed=7),
  )
  clients = small_problem.clients()[:3]
  run = small_problem.Run(process, clients)
  expected = methods.Scaffnew(
    small_problem.theta_0(),
    clients,
    server=oracle.Sgd(1.0),
    eta_l=lambda t: 0.125,
    epochs=80,  # Twenty times the mean is the most; the limits below end it before.
    p=1 / 4,
  )
  drawn = [int(batching.drawn_steps(seeds.fold(seeds.base(7), t))) for t in range(1, 5)]
  assert len({4, *drawn}) > 2  # With 1 / K_i the rounds would be others.
  with engine.graph_context(clients_per_step=3):
    for steps in drawn:
      # A client makes the update of h_i for a round when it begins the next one.
      h_before = expected.h_i.copy()
      run.round(range(3))
      expected.round(range(3), dict.fromkeys(range(3), steps))
  np.testing.assert_allclose(run.theta, expected.theta, rtol=1e-4, atol=1e-5)
  for i in range(3):
    assert np.abs(h_before[i]).max() > 0.01
    np.testing.assert_allclose(run.h_i(i), h_before[i], rtol=1e-4, atol=1e-5)
