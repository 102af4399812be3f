"""Clients whose numbers are not finite, or would not be in 16 bits, alone and in groups."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, models
from tff_adaptive.client import Batching, ClientTraining, whole_client

SGD = tff.learning.optimizers.build_sgdm(1.0)


@pytest.fixture(autouse=True, params=[1, 3], ids=['alone', 'in groups'])
def _graph_context(request):
  with engine.graph_context(clients_per_step=request.param):
    yield


def _linear(dtype=np.float32, **options):
  """Scores x w, the loss of an example is its score: a gradient is the mean of a batch's x."""
  parts = dict(
    initial_weights=(np.zeros(2, dtype),),
    forward=lambda w, x, training, seed: tf.linalg.matvec(x, w[0]),
    example_loss=lambda scores, y: scores,
    x_spec=tf.TensorSpec([None, 2], dtype),
    y_spec=tf.TensorSpec([None], tf.int32),
  )
  return models.Model(**{**parts, **options})


def _diverged(metrics):
  return float(metrics['client_work']['updates']['non_finite_clients'])


def test_a_number_that_no_step_saw_does_not_stay_in_scaffolds_states():
  """Option 1 takes the gradient over all examples, of which a limit leaves out the bad one."""
  process = algorithms.build_scaffold(
    _linear(),
    num_clients=3,
    scaffold_option=1,
    client_learning_rate=0.5,
    training=ClientTraining(batching=Batching(1, shuffle=False, step_limits=True)),
  )
  good = np.ones((4, 2), np.float32)
  bad = good.copy()
  bad[3] = np.inf
  run = small_problem.Run(process, [(x, np.zeros(4, np.int32)) for x in (good, good, bad)])
  run.round([0, 1, 2], limits=[2, 2, 2])
  assert _diverged(run.metrics) == 1
  np.testing.assert_allclose(run.h, [2 / 3, 2 / 3], rtol=1e-6)  # |S| = 2 of N = 3.
  assert [run.h_i(i).tolist() for i in range(3)] == [[1, 1], [1, 1], [0, 0]]
  run.round([0, 1, 2], limits=[2, 2, 2])
  assert np.isfinite(run.theta).all()


class _Keeps(corrections.Correction):
  """Keeps or uploads 1 / (c - 1), c the number of a client's examples, and a count."""

  name, is_stateful = 'keeps', True

  def __init__(self, uploads):
    self.uploads = uploads

  def client_state(self, weights):
    return collections.OrderedDict(kept=tf.zeros([]), rounds=tf.constant(0))

  def client_update(self, client, g_i, steps):
    number = 1 / (client.num_examples - 1)
    state = dict(client.client_state, rounds=client.client_state['rounds'] + 1)
    # The second upload is one number for all, without an axis of the clients.
    return (state, (number, tf.ones([]))) if self.uploads else (dict(state, kept=number), ())


@pytest.mark.parametrize('uploads', [False, True])
def test_a_client_whose_state_or_upload_is_not_finite_has_diverged(uploads):
  process = algorithms.build_drift_corrected(
    _linear(),
    _Keeps(uploads),
    SGD,
    client_learning_rate=1.0,
    training=ClientTraining(batching=Batching(4)),
  )
  run = small_problem.Run(
    process, [(np.full((n, 2), n, np.float32), np.zeros(n, np.int32)) for n in (1, 2, 3)]
  )
  run.round([0, 1, 2])
  assert _diverged(run.metrics) == 1
  np.testing.assert_array_equal(run.theta, [-2.5, -2.5])
  states = [run.client_states[i] for i in range(3)]
  assert [int(s['rounds']) for s in states] == [0, 1, 1]
  assert [float(s['kept']) for s in states] == ([0, 0, 0] if uploads else [0, 1, 0.5])


def test_a_client_without_examples_has_not_diverged_where_the_model_has_no_value_at_zero():
  """Beside others it is padded with zeros, at which x / |x| is NaN."""
  process = algorithms.build_fed_avg(
    _linear(
      forward=lambda w, x, training, seed: tf.linalg.matvec(
        x / tf.norm(x, axis=-1, keepdims=True), w[0]
      )
    ),
    client_learning_rate=1.0,
    training=ClientTraining(batching=Batching(4)),
  )
  cohort = [
    whole_client.client_arrays(np.ones((n, 2), np.float32), np.zeros(n, np.int32), i)
    for i, n in enumerate((4, 0, 4))
  ]
  output = process.next(process.initialize(), cohort)
  assert _diverged(output.metrics) == 0
  (found,) = output.state.global_model_weights.trainable
  np.testing.assert_allclose(found, [-np.sqrt(0.5)] * 2, rtol=1e-6)


def test_gradients_of_16_bits_are_clipped_though_their_squares_overflow():
  process = algorithms.build_fed_avg(
    _linear(np.float16),
    client_learning_rate=0.5,
    training=ClientTraining(batching=Batching(1), clip_norm=1.0),
  )
  x, y = np.array([[300, 400]], np.float16), np.zeros(1, np.int32)
  cohort = [whole_client.client_arrays(x, y, i) for i in range(3)]
  output = process.next(process.initialize(), cohort)
  assert _diverged(output.metrics) == 0
  (found,) = output.state.global_model_weights.trainable
  np.testing.assert_allclose(found, [-0.3, -0.4], rtol=2e-3)


def test_weights_of_several_dtypes_are_clipped_together():
  """The gradient is (3, 4) in float32 and 12 in float64: 13 together."""
  process = algorithms.build_fed_avg(
    _linear(
      initial_weights=(np.zeros(2, np.float32), np.zeros(1, np.float64)),
      forward=lambda w, x, training, seed: (
        tf.linalg.matvec(x, w[0]) + 12 * tf.cast(w[1][0], tf.float32)
      ),
    ),
    client_learning_rate=1.0,
    training=ClientTraining(batching=Batching(1), clip_norm=6.5),
  )
  x, y = np.array([[3, 4]], np.float32), np.zeros(1, np.int32)
  output = process.next(
    process.initialize(), [whole_client.client_arrays(x, y, i) for i in range(3)]
  )
  found = np.concatenate(output.state.global_model_weights.trainable)
  np.testing.assert_allclose(found, [-1.5, -2, -6], rtol=1e-6)
