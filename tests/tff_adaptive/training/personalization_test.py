"""Fine-tuning is SGD on one client, as the oracle writes it."""

import collections

import numpy as np
import pytest

from tests.helpers import oracle, small_problem
from tff_adaptive import training
from tff_adaptive.client import Batching, ClientTraining


def test_full_batches_are_gradient_descent():
  (x, y), rate = small_problem.clients()[1], 0.3
  theta = small_problem.theta_0()
  personalize = training.build_personalization(
    small_problem.model(),
    ClientTraining(batching=Batching(None, epochs=4)),
    lambda rounds: rate / (1 + rounds),
  )
  found = personalize(oracle.unpack(theta), collections.OrderedDict(x=x, y=y), 1, 2)
  expected = theta.astype(np.float64)
  for _ in range(4):
    expected = expected - rate / 3 * oracle.gradient(expected, x, y)
  np.testing.assert_allclose(oracle.pack(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('rate, moves', [(0.1, True), (1e38, False)])
def test_what_diverges_stays_as_it_was(rate, moves):
  x, y = small_problem.clients()[1]
  personalize = training.build_personalization(
    small_problem.model(),
    ClientTraining(batching=Batching(4, epochs=2), weight_decay=0.1),
    lambda rounds: rate,
  )
  weights = oracle.unpack(small_problem.theta_0())
  found = personalize(weights, collections.OrderedDict(x=x, y=y), 1, 0)
  assert moves == bool(np.any(oracle.pack(found) != oracle.pack(weights)))


def test_a_batching_with_step_limits_takes_all_steps():
  x, y = small_problem.clients()[1]
  weights = oracle.unpack(small_problem.theta_0())
  limited, whole = (
    training.build_personalization(
      small_problem.model(),
      ClientTraining(batching=Batching(4, epochs=2, step_limits=limits)),
      lambda rounds: 0.1,
    )(weights, collections.OrderedDict(x=x, y=y), 1, 0)
    for limits in (True, False)
  )
  np.testing.assert_array_equal(oracle.pack(limited), oracle.pack(whole))
