"""Fine-tuning is SGD on one client, as the oracle writes it."""

import collections

import numpy as np
import pytest

from tests.helpers import oracle, small_problem
from tff_adaptive import training
from tff_adaptive.client import Batching, ClientTraining


@pytest.mark.parametrize('limits', [True, False])
def test_full_batches_are_gradient_descent(limits):
  """All steps are taken, also where a run's clients have limits."""
  (x, y), rate = small_problem.clients()[1], 0.3
  theta = small_problem.theta_0()
  personalize = training.build_personalization(
    small_problem.model(),
    ClientTraining(batching=Batching(None, epochs=4, step_limits=limits)),
    lambda rounds: rate / (1 + rounds),
  )
  found = personalize(oracle.unpack(theta), collections.OrderedDict(x=x, y=y), 1, 2)
  expected = theta.astype(np.float64)
  for _ in range(4):
    expected = expected - rate / 2 * oracle.gradient(expected, x, y)
  np.testing.assert_allclose(oracle.pack(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('rate, moves', [(0.1, True), (1e38, False)])
def test_what_diverges_stays_as_it_was(rate, moves):
  x, y = small_problem.clients()[1]
  personalize = training.build_personalization(
    small_problem.model(),
    ClientTraining(batching=Batching(4, epochs=2), weight_decay=0.1),
    lambda rounds: 0.0 if rounds else rate,
  )
  weights = oracle.unpack(small_problem.theta_0())
  found = personalize(weights, collections.OrderedDict(x=x, y=y), 1, 0)
  assert moves == bool(np.any(oracle.pack(found) != oracle.pack(weights)))
