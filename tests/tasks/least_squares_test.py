"""Federated least squares."""

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_a_full_batch_has_the_loss_and_gradient_by_hand(dtype):
  task = tasks.load('least_squares', seed=4, dtype=dtype)
  client = task.train.load(task.train.client_ids[0])
  a = client['x']
  b = client['y']
  model = task.build_model(2)
  weights = (tf.constant(model.initial_weights[0][0]),)
  x = weights[0].numpy()
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, _ = model.loss_and_metrics(weights, tf.constant(a), tf.constant(b))
  assert a.dtype == b.dtype == x.dtype == np.dtype(dtype) == loss.dtype.as_numpy_dtype
  r = a @ x - b
  tolerance = 1e-5 if dtype == 'float32' else 1e-13
  np.testing.assert_allclose(loss, r @ r / 2, rtol=tolerance)
  np.testing.assert_allclose(tape.gradient(loss, weights)[0], a.T @ r, rtol=10 * tolerance)


def test_clients_are_unlike_and_the_seed_decides():
  def solutions(**options):
    task = tasks.load('least_squares', **options)
    loaded = [task.train.load(c) for c in task.train.client_ids]
    return np.array([np.linalg.lstsq(c['x'], c['y'], rcond=None)[0] for c in loaded])

  assert np.linalg.norm(np.std(solutions(seed=1), 0)) > 1
  assert np.linalg.norm(np.std(solutions(seed=1, unlikeness=0.0), 0)) < 0.5
  np.testing.assert_array_equal(solutions(seed=1), solutions(seed=1))
  assert not np.allclose(solutions(seed=1), solutions(seed=2))
  task = tasks.load('least_squares', rows=2000)
  for client, solution in zip(map(task.train.load, task.train.client_ids), solutions(rows=2000)):
    noise = client['y'] - client['x'] @ solution
    np.testing.assert_allclose(np.std(noise), 0.1, rtol=0.1)
  norms = np.linalg.norm(task.train.load_all()['x'].reshape(5, 2000, 5), axis=1)
  assert 0.45 < norms.min() < 0.8 < 1.2 < norms.max() < 1.55  # Of the columns, 0.5 to 1.5.
