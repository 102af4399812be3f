"""Evaluation on whole arrays against plain NumPy."""

import collections

import numpy as np
import pytest

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
