"""A client's training with a record of each local step, for one client at a time."""

import collections
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import local_training, model_adapters
from tff_adaptive.corrections import base as corrections

COLUMNS = ('loss', 'gradient_norm', 'weights_norm', 'distance')


def train(
  model: model_adapters.LocalModel,
  training: local_training.ClientTraining,
  correction: corrections.Correction,
  *,
  weights: tff.learning.models.ModelWeights,
  data: tf.data.Dataset,
  client_state: Any,
  message: local_training.Message,
) -> tuple[local_training.Trained, Mapping[str, tf.Tensor]]:
  """Trains a client as `local_training.train` does, and records its steps.

  Returns:
    The client's results, and float32 [K] by name for its K steps: `loss` and `gradient_norm` of the
    step's batch at the weights before the step, without the correction; `weights_norm`, the 2-norm
    of the weights after the step; and `distance`, that of their difference from the first ones.
  """
  prepared = local_training.prepare(
    model, training, correction, weights, data, client_state, message
  )
  loop = prepared.loop
  theta_0 = prepared.client.theta_0

  def step(carried: Any, local: model_adapters.LocalStep) -> Any:
    values, rows, i = carried
    theta, other = loop.weights(values)
    g, _, sums = model.gradients(theta, other, local, model.start())
    total, count = tf.unstack(model.metric_sums(sums, tf.constant(True))['loss'])
    values = loop.step(values, local)
    moved, _ = loop.weights(values)
    distance = corrections.norm(corrections.combine(tf.subtract, moved, theta_0))
    row = [total / count, corrections.norm(tuple(g)), corrections.norm(moved), distance]
    rows = tf.tensor_scatter_nd_update(rows, [[i]], [tf.stack(row)])
    return values, rows, i + 1

  rows = tf.zeros([prepared.source.steps, len(COLUMNS)])
  first = prepared.first, rows, tf.constant(0)
  (last, rows, _), steps, num_examples = prepared.source.run(step, first)
  trained = prepared.finish(last, steps, num_examples)
  return trained, collections.OrderedDict(zip(COLUMNS, tf.unstack(rows, axis=1)))
