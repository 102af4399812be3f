"""The predicted path of FedAvg on least squares ends where the closed form says."""

import numpy as np

import tff_adaptive_tasks as tasks
from research.experiments import least_squares
from tests.integration import least_squares_solutions_test as solutions


def test_the_predicted_path_ends_at_the_fixed_point_of_equation_6():
  least_squares._FLAGS(['least_squares', '--rounds=600'])
  clients = tasks.load('least_squares', dtype='float64').train
  loaded = [clients.load(c) for c in clients.client_ids]
  a, b = ([np.asarray(data[name], np.float64) for data in loaded] for name in 'xy')
  found = least_squares.predicted(np.ones(5), a, b, 8)
  least_squares._FLAGS.unparse_flags()
  assert found.shape == (601, 5)
  np.testing.assert_array_equal(found[0], 1)
  np.testing.assert_allclose(found[-1], solutions.gradient_descent(a, b, 8, 0.125), rtol=1e-9)
