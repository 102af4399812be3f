"""The factor p of Scaffnew's control variates."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections


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
