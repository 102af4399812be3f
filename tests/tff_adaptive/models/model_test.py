"""Evaluation on whole arrays against plain NumPy."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive import models


@pytest.mark.parametrize('batch_size', [1, 3, 7, 500])
def test_evaluation_is_the_mean_over_all_examples_whatever_the_batches(batch_size):
  rng = np.random.default_rng(0)
  model = small_problem.model(metrics={'label': lambda scores, y: (y, None)})  # Integers.
  weights = [rng.normal(size=w.shape).astype(np.float32) for w in model.initial_weights[0]]
  x = rng.normal(size=(7, 5)).astype(np.float32)
  y = rng.integers(0, 3, 7).astype(np.int32)
  data = collections.OrderedDict(x=x, y=y)
  values = models.build_evaluation(model, batch_size)(weights, data)
  logits = np.asarray(model.forward(weights, x, False, None), np.float64)
  losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(7), y]
  wanted = {'loss': losses.mean(), 'label': y.mean()}
  assert values == pytest.approx(wanted, rel=1e-6)
  data['y'] = y.astype(np.int64)
  assert models.build_evaluation(model, batch_size)(weights, data) == values
  with pytest.raises(ValueError, match='the evaluation data are empty'):
    models.build_evaluation(model, batch_size)(weights, {'x': x[:0], 'y': y[:0]})


def test_tffs_own_evaluation_has_metrics_of_sums():
  share_of_2 = models.SumMetric(
    2,
    lambda scores, y: tf.stack([tf.cast(y == 2, tf.float32), tf.ones_like(scores[:, 0])], 1),
    lambda sums: sums[..., 0] / sums[..., 1],
  )
  model = small_problem.model(metrics={'share': share_of_2, 'accuracy': models.accuracy})
  assert model.metric_names == ('loss', 'accuracy', 'share')
  assert model.trained_metric_names == ('loss', 'accuracy')
  state = model.initialize_metrics_state()
  labels = [np.int32([2, 0, 2]), np.int32([1])]
  for y in labels:
    output = tff.learning.models.BatchOutput(
      loss=0.0, predictions=tf.one_hot([2] * len(y), 3), num_examples=len(y)
    )
    state = model.update_metrics_state(state, y, output)
  values = model.finalize_metrics(state)
  assert values['share'] == 0.5
  assert values['accuracy'] == 0.5
