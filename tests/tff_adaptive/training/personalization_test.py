"""Fine-tuning is SGD on one client, as the oracle writes it."""

import numpy as np
import pytest

import oracle
from tests.helpers import small_problem
from tff_adaptive import corrections, training
from tff_adaptive.client import Batching, ClientTraining

X, Y = small_problem.clients()[1]
THETA = small_problem.theta_0()


def tuned(learning_rate, rounds, batching, parts=(), **options):
  """The weights after fine-tuning from `THETA`."""
  options = ClientTraining(batching=batching, **options)
  personalize = training.build_personalization(small_problem.model(), options, learning_rate, parts)
  return oracle.pack(personalize(oracle.unpack(THETA), {'x': X, 'y': Y}, 1, rounds))


@pytest.mark.parametrize('limits, state', [(True, 'keep'), (False, 'reset')])
def test_full_batches_are_gradient_descent(limits, state):
  """All steps are taken, also where a run's clients have limits."""
  batching = Batching(None, epochs=4, step_limits=limits)
  weights = tuned(lambda rounds: 0.3 / (1 + rounds), 2, batching, optimizer_state=state)
  expected = THETA.astype(np.float64)
  for _ in range(4):
    expected = expected - 0.15 * oracle.gradient(expected, X, Y)
  np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('rate, moves', [(0.1, True), (1e38, False)])
def test_what_diverges_stays_as_it_was(rate, moves):
  batching = Batching(4, epochs=2)
  weights = tuned(
    lambda rounds: 0.0 if rounds else rate, 0, batching, parts=[corrections.WeightDecay(0.1)]
  )
  assert moves == bool(np.any(weights != THETA))
