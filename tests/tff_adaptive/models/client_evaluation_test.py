"""Evaluation of many clients in one pass: NumPy client by client, and the pooled evaluation."""

import collections
import weakref

import numpy as np
import pytest

import oracle
from tests.helpers import small_problem
from tff_adaptive.models import client_evaluation


def arrays(data):
  return [collections.OrderedDict(x=x, y=y) for x, y in data]


def by_hand(theta, x, y):
  """Sums of the losses and of the hits of the perceptron, in NumPy."""
  w, a, v, c = oracle.unpack(np.asarray(theta, np.float64))
  scores = np.tanh(x @ w + a) @ v + c
  log_p = scores - np.log(np.exp(scores).sum(1, keepdims=True))
  hits = np.count_nonzero(scores.argmax(1) == y)
  return [[-log_p[np.arange(len(y)), y].sum(), len(y)], [hits, len(y)]]


@pytest.mark.parametrize('batch_size', [1, 3, 7, 500])
def test_two_models_on_clients_of_all_sizes_are_as_in_numpy(batch_size):
  data = [*small_problem.clients(), *small_problem.clients(5, (70, 0, 2))]
  thetas = [small_problem.theta_0(2), small_problem.theta_0(3)]
  model = small_problem.model()
  forward = model.forward

  def forward_without_training(weights, x, training, seed):
    assert not training
    return forward(weights, x, training, seed)

  model.forward = forward_without_training
  evaluate = client_evaluation.build_client_evaluation(model, batch_size)
  sums = evaluate([oracle.unpack(theta) for theta in thetas], iter(arrays(data)))
  for i, theta in enumerate(thetas):
    expected = np.array([by_hand(theta, x, y) for x, y in data])
    np.testing.assert_allclose(sums['loss'][i], expected[:, 0], rtol=2e-5)
    np.testing.assert_array_equal(sums['accuracy'][i], expected[:, 1])
  assert evaluate([oracle.unpack(thetas[0])], [])['loss'].shape == (1, 0, 2)


def test_no_more_clients_are_in_memory_than_a_few_batches_hold():
  class Held(dict):
    pass

  alive = weakref.WeakSet()
  most = []

  def clients():
    for x, y in small_problem.clients(num_examples=[4] * 300):
      held = Held(x=x, y=y)
      held.__class__.__hash__ = object.__hash__
      alive.add(held)
      most.append(len(alive))
      yield held

  evaluate = client_evaluation.build_client_evaluation(small_problem.model(), 2)
  sums = evaluate([oracle.unpack(small_problem.theta_0())], clients())
  assert sums['loss'].shape == (1, 300, 2)
  assert max(most) < 30
  clients = [{'y': range(n)} for n in (2, 3, 0, 5, 9, 1)]
  sizes = []
  for chunk in client_evaluation._chunks(clients, 5):
    sizes.append([len(client['y']) for client in chunk])
  assert sizes == [[2, 3], [0, 5], [9], [1]]
