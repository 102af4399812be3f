"""A schedule of the server's rate counts rounds, those without a usable update too."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, optimizers
from tff_adaptive.client.batching import Batching

NAMES = ('fed_prox', 'ada_best')  # Without client states, and with.


def _build(name, server_optimizer, **options):
  return algorithms.build(
    name,
    small_problem.model(),
    server_optimizer=server_optimizer,
    client_learning_rate=0.1,
    batching=Batching(4),
    **options,
  )


def _thetas(graph, process, cohorts):
  """theta after each round."""

  def rounds():
    run = small_problem.Run(process, small_problem.clients())
    return [run.round(cohort).theta for cohort in cohorts]

  return engines.run(graph, rounds)


def _rest(t):
  """Rate 0 in round 2 and 1 in all others."""
  return tf.where(tf.equal(t, 2), 0.0, 1.0)


@pytest.mark.parametrize('name', NAMES)
def test_a_round_with_nobody_counts_for_the_schedule(graph, name):
  first, empty, third, fourth = _thetas(
    graph,
    _build(name, optimizers.build_sgdm(1.0), server_schedule=_rest),
    [[0, 1], [], [2, 3], [4]],
  )
  np.testing.assert_array_equal(empty, first)
  np.testing.assert_array_equal(third, first)  # Round 2, in which the rate is 0.
  assert np.any(fourth != third)


def test_a_schedule_that_stays_leaves_all_else_as_it_is_without(graph):
  """Moments, steps and thus theta: nobody in round 1 moves none of them."""
  cohorts = [[0, 1], [], [2, 3], [4]]
  plain, scheduled = (
    _thetas(graph, _build('fed_prox', optimizers.build_adam(rate, tau=1e-2)), cohorts)
    for rate in (0.1, lambda t: 0.1)
  )
  np.testing.assert_array_equal(plain, scheduled)
  assert np.any(plain[2] != plain[1])
