"""Cox's loss and the concordance index: sums over pairs by hand, padding, groups, evaluation."""

import collections
import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import closeness
from tff_adaptive import algorithms, models
from tff_adaptive.client import (
  Batching,
  ClientTraining,
  batch_sources,
  client_arrays,
  model_adapters,
)
from tff_adaptive_tasks import flamby

COLUMNS = 3


def cohort(n, seed=0):
  """Features, events and times; some times are equal."""
  rng = np.random.default_rng([seed, n])
  x = rng.normal(size=(n, COLUMNS)).astype(np.float32)
  y = np.stack([rng.integers(2, size=n), rng.integers(1, 6, size=n)], 1).astype(np.float32)
  return x, y


def cox_by_hand(scores, y):
  """The mean loss: patients in falling order of time, each against those before it."""
  order = sorted(range(len(y)), key=lambda i: -y[i, 1])
  s = scores[order].astype(np.float64)
  terms = [y[i, 0] * (np.log(np.exp(s[: k + 1]).sum()) - s[k]) for k, i in enumerate(order)]
  return np.mean(terms)


def concordance_by_hand(scores, y):
  pairs = [
    np.sign(scores[i] - scores[j]) / 2 + 0.5
    for i, j in itertools.product(range(len(y)), repeat=2)
    if y[i, 0] and (y[i, 1] < y[j, 1] or (y[i, 1] == y[j, 1] and not y[j, 0]))
  ]
  return [sum(pairs), len(pairs)]


def model():
  return flamby.build_cox_model(2, COLUMNS)


def scores_of(model, x):
  w, b = model.initial_weights[0]
  return (x @ w + b)[:, 0]


@pytest.mark.parametrize('n', [1, 2, 9])
def test_a_batch_has_the_loss_and_the_concordance_by_hand_and_padding_counts_nothing(n):
  x, y = cohort(n)
  cox = model()
  weights = tuple(map(tf.constant, cox.initial_weights[0]))
  scores = np.round(scores_of(cox, x), 1)  # Some are equal.
  in_order, pairs = flamby.concordance(tf.constant(scores), y, tf.ones([n], tf.bool))
  np.testing.assert_allclose([sum(in_order), sum(pairs)], concordance_by_hand(scores, y))
  loss, _ = cox.loss_and_metrics(weights, tf.constant(x), tf.constant(y))
  np.testing.assert_allclose(loss, cox_by_hand(scores_of(cox, x), y), rtol=1e-5, atol=1e-6)
  # Three more rows, of patients that would be at risk with everyone or die before everyone.
  more_x = np.concatenate([x, x[:1] + 50, x[:1], x[:1]])
  more_y = np.concatenate([y, np.float32([[1, 99], [1, 99], [1, 0]])])
  shares = tf.constant([1 / n] * n + [0] * 3, tf.float32)
  with tf.GradientTape(persistent=True) as tape:
    tape.watch(weights)
    alone = cox.loss_and_metrics(weights, tf.constant(x), tf.constant(y))
    beside = cox.loss_and_metrics(weights, tf.constant(more_x), tf.constant(more_y), shares=shares)
  of_alone = tape.gradient(alone[0], weights)
  of_beside = tape.gradient(beside[0], weights)
  for a, b in zip((*alone, *of_alone), (*beside, *of_beside)):
    closeness.assert_close(a, b)


def test_a_gradient_that_vanishes_is_exactly_0():
  """Adam's steps do not depend on a gradient's size: it would follow the errors of rounding."""
  scores = tf.constant(300 * np.arange(50), tf.float32)
  y = tf.stack([tf.ones([50]), tf.range(50.0, 0, -1)], 1)  # The largest scores die first.
  with tf.GradientTape() as tape:
    tape.watch(scores)
    losses = flamby.cox_losses(scores, y, tf.ones([50], tf.bool))
  np.testing.assert_array_equal(tape.gradient(losses, scores), np.zeros(50))


def test_evaluation_takes_all_examples_and_each_client_as_one_batch():
  cox = model()
  weights = cox.initial_weights[0]
  x, y = cohort(40)
  whole = models.build_evaluation(cox, 7)(weights, {'x': x, 'y': y})
  expected = concordance_by_hand(scores_of(cox, x), y)
  np.testing.assert_allclose(whole['concordance'], expected[0] / expected[1], rtol=1e-6)
  np.testing.assert_allclose(whole['loss'], cox_by_hand(scores_of(cox, x), y), rtol=1e-5)
  clients = [cohort(n, 3) for n in (8, 0, 1, 20)]
  arrays = [collections.OrderedDict(x=x, y=y) for x, y in clients]
  sums = models.build_client_evaluation(cox, 7)([weights], arrays)
  for i, (x, y) in enumerate(clients):
    scores = scores_of(cox, x)
    if len(y):
      loss = len(y) * cox_by_hand(scores, y)
    else:
      loss = 0
    np.testing.assert_allclose(sums['loss'][0, i], [loss, len(y)], rtol=1e-5)
    np.testing.assert_allclose(sums['concordance'][0, i], concordance_by_hand(scores, y))


def test_rounds_on_batches_that_go_on_are_as_in_numpy():
  data = [cohort(n, 5) for n in (7, 10)]
  cox = model()
  batching = Batching(4, local_steps=3, continue_batches=True, shuffle=False)
  process = algorithms.build_fed_avg(
    cox,
    client_learning_rate=0.1,
    client_weighting='examples',
    training=ClientTraining(batching=batching),
  )
  state = process.initialize()
  w = np.concatenate([a.ravel() for a in cox.initial_weights[0]]).astype(np.float64)
  for t in range(3):
    state = process.next(state, [client_arrays(*d, i) for i, d in enumerate(data)]).state
    thetas = []
    for x, y in data:
      starts = range(0, len(y), 4)
      theta = w.copy()
      for k in range(3 * t, 3 * t + 3):
        rows = slice(starts[k % len(starts)], starts[k % len(starts)] + 4)
        theta -= 0.1 * cox_gradient(theta, x[rows], y[rows])
      thetas.append(theta)
    w = np.average(thetas, axis=0, weights=[7, 10])
  weights = np.concatenate([np.ravel(a) for a in state.global_model_weights.trainable])
  np.testing.assert_allclose(weights[:-1], w[:-1], rtol=1e-4)  # The bias has no gradient.


def cox_gradient(w, x, y):
  order = np.argsort(-y[:, 1], kind='stable')
  x = x[order]
  y = y[order]
  gradient = np.zeros_like(w)
  for k in np.flatnonzero(y[:, 0]):
    p = np.exp(x[: k + 1] @ w[:-1])
    gradient[:-1] += p @ x[: k + 1] / p.sum() - x[k]
  return gradient / len(y)


def test_the_full_gradient_is_that_of_one_batch():
  x, y = cohort(600)  # More than a slice has of a model whose examples are for themselves.
  cox = model()
  weights = tuple(map(tf.constant, cox.initial_weights[0]))
  element = {'x': tf.constant(x), 'y': tf.constant(y), 'client': 0}
  source = batch_sources.WholeArrays(model_adapters.wrap(cox), Batching(8), 0, element, 1)
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, _ = cox.loss_and_metrics(weights, element['x'], element['y'])
  for a, b in zip(source.mean_gradient(weights, ()), tape.gradient(loss, weights)):
    closeness.assert_close(a, b)
