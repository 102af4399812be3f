"""The state that a model changes while a client trains, against NumPy and TFF's own FedAvg."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms, corrections, engine
from tff_adaptive.client import Batching, ClientTraining, client_arrays
from tff_adaptive.corrections import base

SPEC = collections.OrderedDict(x=tf.TensorSpec([None]), y=tf.TensorSpec([None]))
RATE = 0.1
DECAY = 0.5


class _Stateful(tff.learning.models.VariableModel):
  """A linear model w x whose loss depends on two variables that it changes by itself.

  With the k-th batch of the pass the loss is k / 4 of the mean squared error (a warm-up), plus the
  squared distance of w from a teacher, the exponential moving average of w.
  """

  input_spec = SPEC
  predict_on_batch = None
  trainable_variables = non_trainable_variables = local_variables = ()

  def __init__(self):
    self._w = tf.Variable(1.0)
    self._sum = tf.Variable(0.0)
    self._k = tf.Variable(0.0, trainable=False)
    self._teacher = tf.Variable(2.0, trainable=False)
    self.trainable_variables = [self._w]
    self.non_trainable_variables = [self._k, self._teacher]
    self.local_variables = [self._sum]

  @tf.function
  def forward_pass(self, batch, training=True):
    self._k.assign_add(1.0)
    self._teacher.assign(DECAY * self._teacher + (1 - DECAY) * self._w)
    predictions = self._w * batch['x']
    loss = self._k / 4 * tf.reduce_mean((predictions - batch['y']) ** 2)
    loss += (self._w - tf.stop_gradient(self._teacher)) ** 2
    self._sum.assign_add(self._k)
    return tff.learning.models.BatchOutput(loss, predictions, tf.shape(predictions)[0])

  @tf.function
  def report_local_unfinalized_metrics(self):
    return collections.OrderedDict(steps=self._sum)

  @tf.function
  def reset_metrics(self):
    self._sum.assign(0.0)

  def metric_finalizers(self):
    return collections.OrderedDict(steps=tf.function(lambda value: value))


class _Halved(corrections.Correction):
  """Adds half the gradient at the weights the round began with, taken twice."""

  name = 'halved'

  def gradient(self, client, theta, g):
    first = client.gradient_at(client.theta_0)
    second = client.gradient_at(client.theta_0)
    return base.combine(lambda g, a, b: g + 0.25 * (a + b), g, first, second)


def _examples(n):
  rng = np.random.default_rng(n)
  return rng.normal(size=n).astype(np.float32), rng.normal(size=n).astype(np.float32)


def _gradient(w, x, y, k, teacher):
  """The gradient of a batch at w, where k batches came before it."""
  moved = DECAY * teacher + (1 - DECAY) * w
  return (k + 1) / 4 * np.mean(2 * (w * x - y) * x) + 2 * (w - moved)


def _trained(x, y, rho=0.0, share=0.0):
  """Returns w after the batches of 4 of one pass, in NumPy from the docstring of the model."""
  w = 1.0
  teacher = 2.0
  for k in range(-(-len(x) // 4)):
    batch = [v[4 * k : 4 * k + 4].astype(np.float64) for v in (x, y)]
    gradients = []
    for point in (w, 1.0):
      g = _gradient(point, *batch, k, teacher)
      if rho:  # In one dimension g / norm(g) is its sign.
        g = _gradient(point + rho * np.sign(g), *batch, k, teacher)
      gradients.append(g)
    teacher = DECAY * teacher + (1 - DECAY) * w
    w -= RATE * (gradients[0] + share * gradients[1])
  return w


@pytest.mark.parametrize('rho', [0.0, 0.3])
@pytest.mark.parametrize('correction', [None, _Halved()], ids=['', 'gradient_at'])
@pytest.mark.parametrize('as_arrays', [True, False])
@pytest.mark.sample(1)
def test_it_moves_with_the_batches_and_not_with_further_gradients(as_arrays, correction, rho):
  x, y = _examples(11)
  if as_arrays:
    batching = Batching(4, shuffle=False)
    data = client_arrays(x, y, 0)
  else:
    batching = None
    data = _datasets()[0]
  process = algorithms.build_drift_corrected(
    _Stateful,
    correction or corrections.Correction(),
    client_learning_rate=RATE,
    training=ClientTraining(batching=batching),
    more_parts=algorithms.regularization(sam_rho=rho),
  )
  with engine.graph_context():
    output = process.next(process.initialize(), [data])
  wanted = _trained(x, y, rho, share=0.5 if correction else 0.0)
  np.testing.assert_allclose(output.state.global_model_weights.trainable[0], wanted, rtol=1e-5)
  assert output.metrics['client_work']['train']['steps'] == 1 + 2 + 3


def _datasets():
  return [
    tf.data.Dataset.from_tensor_slices(collections.OrderedDict(zip('xy', _examples(n)))).batch(4)
    for n in (11, 3, 21)
  ]


def test_fed_avg_is_that_of_tff_and_each_client_begins_with_the_servers_state():
  ours = algorithms.build_fed_avg(_Stateful, client_learning_rate=RATE)
  tffs = tff.learning.algorithms.build_weighted_fed_avg(
    _Stateful, tff.learning.optimizers.build_sgdm(RATE), tff.learning.optimizers.build_sgdm(1.0)
  )
  data = _datasets()
  with engine.graph_context(parallel_clients=3):
    one = ours.initialize()
    other = tffs.initialize()
    result = ours.next(one, data)
    of_tff = tffs.next(other, data)
  weights = ours.get_model_weights(result.state)
  wanted = tffs.get_model_weights(of_tff.state)
  np.testing.assert_allclose(weights.trainable, wanted.trainable, rtol=1e-6)
  np.testing.assert_array_equal(weights.non_trainable, [0, 2])  # The server's do not change.
  np.testing.assert_array_equal(wanted.non_trainable, [0, 2])
  by_hand = np.average([_trained(*_examples(n)) for n in (11, 3, 21)], weights=(11, 3, 21))
  np.testing.assert_allclose(weights.trainable[0], by_hand, rtol=1e-5)
