"""What the processes share: weights of clients in the mean."""

import numpy as np
import pytest

from tests.helpers import engines, small_problem
from tff_adaptive import algorithms
from tff_adaptive.client import Batching, ClientTraining

DATA = small_problem.clients()
NOBODY = (DATA[0][0][:0], DATA[0][1][:0])
DIVERGED = (np.float32(np.nan) * DATA[0][0], DATA[0][1])


def inverse_loss(metrics):
  total, count = metrics['loss'][..., 0], metrics['loss'][..., 1]
  return count / total  # 0 / 0 for a client that took no step.


@pytest.mark.parametrize('unused', [NOBODY, DIVERGED], ids=['empty', 'diverged'])
@pytest.mark.parametrize('algorithm', ['fed_avg', 'ada_best'])
def test_a_client_that_is_not_used_has_no_weight_whatever_a_function_gives(
  graph, algorithm, unused
):
  process = algorithms.build(
    algorithm,
    small_problem.model(),
    client_learning_rate=0.1,
    client_weighting=inverse_loss,
    training=ClientTraining(batching=Batching(4)),
  )

  def theta(*clients):
    run = small_problem.Run(process, [*DATA, unused])
    return engines.run(graph, lambda: run.round(clients)).theta

  moved = theta(1, 2)
  assert np.any(moved != small_problem.theta_0())
  np.testing.assert_allclose(theta(1, 2, len(DATA)), moved, rtol=1e-6, atol=1e-7)
