"""Methods that this package has not: each is a part of a few lines, against plain NumPy."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import oracle
from oracle import newer
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, models
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.corrections import base

DATA = small_problem.clients()
X, Y = DATA[4]  # 16 examples, in batches of four.
RATE = 0.2


@dataclasses.dataclass(frozen=True)
class Term(corrections.Correction):
  """TERM: the tilted loss log(mean(exp(t f))) / t of a batch (Li et al., 2021, equation 1)."""

  tilt: float = 2.0

  def loss(self, client, batch):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.y, batch.logits())
    return tf.math.log(batch.mean(tf.exp(self.tilt * losses))) / self.tilt


@dataclasses.dataclass(frozen=True)
class FedDecorr(corrections.Correction):
  """FedDecorr: features that are not correlated (Shi et al., 2023, equation 3)."""

  beta: float = 0.5
  layer: str | None = None

  def loss(self, client, batch):
    z = batch.features_at(batch.theta, self.layer)
    z = z - tf.reduce_mean(z, 0)
    z = z / tf.sqrt(tf.reduce_mean(z**2, 0))
    correlations = tf.linalg.matmul(z, z, transpose_a=True) / tf.cast(tf.shape(z)[0], z.dtype)
    return batch.loss + self.beta * tf.reduce_mean(correlations**2)


def tilted(theta, x, y, tilt=2.0):
  losses = newer.losses(newer.logits(theta, x), y)
  return np.log(np.mean(np.exp(tilt * losses))) / tilt


def decorrelated(theta, x, y, beta=0.5):
  correlations = np.corrcoef(newer.features(theta, x), rowvar=False)
  return newer.loss(theta, x, y) + beta * np.mean(correlations**2)


def trained(part, model=None):
  """The update of a client that trains on X and Y."""
  example = collections.OrderedDict(x=tf.constant(X), y=tf.constant(Y), client=tf.constant(4))
  model = model or small_problem.model_with_features()
  return oracle.pack(small_problem.train_locally(example, model, part, rate=RATE).update)


def by_numpy(loss):
  """The same update by gradients that are differences of the loss."""
  received = small_problem.theta_0().astype(np.float64)
  theta = received
  for start in range(0, len(Y), 4):
    x, y = X[start : start + 4].astype(np.float64), Y[start : start + 4]
    theta = theta - RATE * newer.slope(lambda at, x=x, y=y: loss(at, x, y), theta)
  return received - theta


@pytest.mark.parametrize(
  ('part', 'loss'), [(Term(), tilted), (FedDecorr(), decorrelated)], ids=['TERM', 'FedDecorr']
)
def test_a_part_makes_a_loss_of_outputs_labels_and_features(part, loss):
  np.testing.assert_allclose(trained(part), by_numpy(loss), rtol=1e-4, atol=1e-6)


def keras_model():
  w, a, v, c = oracle.unpack(small_problem.theta_0())
  constant = tf.keras.initializers.Constant
  return tf.keras.Sequential(
    [
      tf.keras.Input([5]),
      tf.keras.layers.Dense(4, 'tanh', True, constant(w), constant(a), name='hidden'),
      tf.keras.layers.Activation('linear', name='same'),
      tf.keras.layers.Dense(3, None, True, constant(v), constant(c)),
    ]
  )


def from_keras():
  return models.from_keras(
    keras_model, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  )


def test_features_are_those_of_a_layer_by_name():
  update = trained(FedDecorr(layer='hidden'), from_keras())
  np.testing.assert_allclose(update, by_numpy(decorrelated), rtol=1e-4, atol=1e-6)


def test_a_layer_that_is_not_there_is_refused():
  with pytest.raises(ValueError, match=r"no layer 'hiden'; its layers are hidden, same, dense"):
    trained(FedDecorr(layer='hiden'), from_keras())
  with pytest.raises(ValueError, match=r"no layer 'hidden': only models of models.from_keras"):
    trained(FedDecorr(layer='hidden'))


@dataclasses.dataclass(frozen=True)
class AdaptiveMu(corrections.Correction):
  """FedProx whose mu rises when the clients' loss does (Li et al., 2020, section 5.3.2)."""

  name = 'adaptive_mu'

  def server_state(self, weights):
    return collections.OrderedDict(mu=tf.constant(0.0), loss=tf.constant(float('inf')))

  def broadcast(self, server_state):
    return server_state['mu']

  def gradient(self, client, theta, g):
    return base.combine(lambda g, x, x0: g + client.broadcast * (x - x0), g, theta, client.theta_0)

  def client_update(self, client, g_i, steps):
    return (), client.full_loss()

  def server_update(self, server_state, server):
    change = tf.where(server.uploads > server_state['loss'], 0.1, -0.1)
    mu = tf.maximum(server_state['mu'] + change, 0.0)
    return collections.OrderedDict(mu=mu, loss=server.uploads), server.g_bar


def test_a_part_follows_the_mean_loss_of_its_round():
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    AdaptiveMu(),
    client_learning_rate=RATE,
    training=ClientTraining(batching=Batching(4, shuffle=False)),
    client_weighting='uniform',
  )
  run = small_problem.Run(process, DATA)
  theta = small_problem.theta_0().astype(np.float64)
  mu, last = 0.0, np.inf
  followed = []
  for cohort in small_problem.cohorts(8):
    run.round(cohort)
    ends = []
    for i in cohort:
      x, y = DATA[i]
      at = theta
      for start in range(0, len(y), 4):
        g = oracle.gradient(at, x[start : start + 4], y[start : start + 4])
        at = at - RATE * (g + mu * (at - theta))
      ends.append(at)
    mean = np.mean([newer.loss(theta, *DATA[i]) for i in cohort])
    mu = max(mu + (0.1 if mean > last else -0.1), 0.0)
    theta, last = np.mean(ends, 0), mean
    followed.append(mu)
    assert float(run.state.correction['mu']) == pytest.approx(mu, abs=1e-6)
  assert 0 < followed.index(max(followed)) < len(followed) - 1  # It rises and falls.
  np.testing.assert_allclose(run.theta, theta, rtol=1e-4, atol=1e-5)
