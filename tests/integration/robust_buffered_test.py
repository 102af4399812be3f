"""Robust rules and attackers in asynchronous training: the rule sees what arrives in the buffer."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import engines
from tff_adaptive import ClientTraining, aggregation, algorithms, asynchrony
from tff_adaptive.client import Batching, client_arrays
from tff_adaptive_tasks import least_squares

TASK = least_squares.load(num_clients=5, rows=6, columns=3)
RATE = 0.2
FACTORS = (1.0, 0.5, 0.25, 0.5, 1.0)  # Of staleness.
STRENGTHS = (0.0, 0.0, 3.0, 0.0, 0.0)  # Client 2 attacks.
OPTIONS = {
  'median': {},
  'trimmed_mean': {'trim': 0.2},
  'krum': {},
  'multi_krum': {},
  'geometric_median': {},
  'norm_bounding': {},
  'centred_clipping': {},
}


def sent(weights):
  """What the clients send after one gradient step, as rows; the attacker turns it round."""
  rows = []
  for i, client_id in enumerate(TASK.train.client_ids):
    arrays = TASK.train.load(client_id)
    x = arrays['x'].astype('d')
    gradient = x.T @ (x @ weights - arrays['y'])  # The loss is a sum over the rows.
    sign = -STRENGTHS[i] if STRENGTHS[i] else 1.0
    rows.append(sign * FACTORS[i] * RATE * gradient)
  return np.array(rows, 'f')


def data(asynchronous):
  cohort = []
  for i, client_id in enumerate(TASK.train.client_ids):
    arrays = TASK.train.load(client_id)
    more = {
      'older_model': np.int32(-1),
      asynchronous.factor_entry: np.float32(FACTORS[i]),
      'attack': np.float32(STRENGTHS[i]),
    }
    cohort.append(client_arrays(arrays['x'], arrays['y'], i, **more))
  return cohort


@pytest.mark.parametrize('name', OPTIONS)
@pytest.mark.sample(1)
def test_a_step_is_the_rule_of_the_discounted_updates_of_the_buffer(graph, name):
  asynchronous = asynchrony.Buffered(5)
  model = TASK.build_model(0)
  cohort = aggregation.Cohort(5, model.initial_weights[0])
  factory = aggregation.build_aggregator(name, OPTIONS[name], cohort)
  process = algorithms.build_fed_avg(
    model,
    client_learning_rate=RATE,
    training=ClientTraining(batching=Batching(None), attack='sign_flip'),
    client_weighting='uniform',
    aggregator=factory,
    asynchrony=asynchronous,
  )

  def run():
    state = process.initialize()
    before = np.asarray(state.global_model_weights.trainable[0])
    after = process.next(state, data(asynchronous)).state
    return before, np.asarray(after.global_model_weights.trainable[0])

  before, after = engines.run(graph, run)
  rows = sent(before.astype('d'))
  rule = factory._rule
  state = rule.initial_state(rows.shape[1], tf.float32)
  expected = rule.combine(state, tf.constant(rows), tf.ones([5])).aggregate
  np.testing.assert_allclose(before - after, expected, rtol=1e-4, atol=1e-6)
  assert np.abs(before - after - rows.mean(0)).max() > 1e-3  # The mean is another step.
