"""Shared parts of the next-token tasks: the model around LSTMs, the loss, and accuracies.

B sequences of T tokens are int32 [..., B, T]. Token 0 is padding, only at the end. The target is
the input shifted by one, so the input at step t > 0 is the target at step t - 1.
"""

import collections
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks.models import layers, lstm

PADDING = 0
Padding = Literal['published', 'tff']
Lstm = Literal['tensorflow', 'compiled']


def lstm_weights(
  draw: layers.Initializer, inputs: int, units: int, he_normal: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Draws an LSTM's kernel (He normal or Glorot uniform), recurrent kernel and bias as in Keras."""
  kernel = draw.he_normal if he_normal else draw.glorot_uniform
  bias = layers.zeros(4 * units)
  # Keras's unit_forget_bias.
  bias[units : 2 * units] = 1
  return kernel(inputs, 4 * units), draw.orthogonal(units, 4 * units), bias


def unmasked(y: tf.Tensor) -> tf.Tensor:
  """Returns float32 like y: 1 at the first step and if a step's input is not padding, else 0."""
  valid = tf.cast(tf.not_equal(y, PADDING), tf.float32)
  # The first step counts; a later step does if its input, the previous target, is not padding.
  return tf.concat([tf.ones_like(valid[..., :1]), valid[..., :-1]], -1)


def token_weights(y: tf.Tensor, padding: Padding) -> tf.Tensor:
  """Returns the weight of each token's cross-entropy in an example's loss.

  In a step whose input is padding, Keras's LSTM keeps its state. Such a masked step repeats the
  prediction of the text's last step, which has the first padding as its target.

  Args:
    y: int [..., B, T], the targets.
    padding: 'published' is the loss in the code of Reddi et al. (2021), the mean over T steps: a
      text's last step counts 1 + (number of masked steps) times. With 'tff' masked steps count 0.

  Returns:
    float32 [..., B, T]. An example's loss is the sum of weight times cross-entropy.
  """
  read = unmasked(y)
  if padding == 'tff':
    return read / y.shape[-1]
  masked = tf.reduce_sum(1 - read, -1, keepdims=True)
  next_read = tf.concat([read[..., 1:], tf.zeros_like(read[..., :1])], -1)
  # The factor in parentheses is 1 at a text's last step alone.
  return (read + (read - read * next_read) * masked) / y.shape[-1]


class TokenMeanModel(models.Model):
  """A model whose training loss is the mean over all tokens of a batch.

  This is the loss of TFF 0.87's baseline tasks, in which examples with more padding count less. The
  metric 'loss' is still the mean of the examples' losses, in which padded steps count as 0.
  """

  def batch_loss(self, mean_loss: tf.Tensor, y: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
    """Returns the mean over the steps whose input is not padding."""
    read = tf.reduce_mean(unmasked(y), -1)
    share = tf.reduce_mean(read, -1) if shares is None else tf.reduce_sum(read * shares, -1)
    return tf.math.divide_no_nan(mean_loss, share)


def accuracy(ignored: Sequence[int]) -> Callable:
  """Returns a metric of `Model`: the accuracy over all steps whose target is not in `ignored`."""

  def metric(logits: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    counted = tf.ones_like(y, tf.bool)
    for token in ignored:
      counted &= tf.not_equal(y, token)
    counted = tf.cast(counted, tf.float32)
    hit = tf.cast(
      tf.equal(tf.argmax(logits, -1, output_type=tf.int32), tf.cast(y, tf.int32)), tf.float32
    )
    return tf.reduce_sum(hit * counted, -1), tf.reduce_sum(counted, -1)

  return metric


def num_tokens(metrics: Mapping[str, tf.Tensor]) -> tf.Tensor:
  """Returns a client's weight, its number of targets, without padding, in all local steps."""
  return metrics['accuracy'][..., 1]


def build_model(
  weights: Sequence[np.ndarray],
  run: Callable,
  steps: int,
  metrics: Mapping[str, Sequence[int]],
  padding: Padding,
  lstm_kind: Lstm = 'tensorflow',
) -> models.Model:
  """Builds a next-token model of int32 inputs and targets [T], with a client axis.

  Args:
    weights: Initial weights. The first is the embedding [vocabulary, size].
    run: A function (weights without the embedding, embedded [..., T, B, size], LSTM layer) ->
      logits [..., T, B, vocabulary]. The LSTM layer is a function of an input and its weights.
    steps: T, the length of a sequence.
    metrics: By the name of each accuracy, the targets that it ignores.
    padding: See `token_weights`. 'tff' also takes the mean over a batch's tokens.
    lstm_kind: The LSTM's operations in training: 'tensorflow', or 'compiled' (`kernels.lstm`) for
      the graph engine on a CPU. Evaluation and exported models use TensorFlow's operations.
  """

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del seed
    layer = functools.partial(lstm.lstm, is_compiled=training and lstm_kind == 'compiled')
    x = tf.convert_to_tensor(x)
    # Steps first: the LSTM takes one slice of the examples after the other.
    time_first = tf.linalg.matrix_transpose(x)
    embedded = tf.gather(weights[0], time_first, batch_dims=x.shape.rank - 2)
    logits = run(weights[1:], embedded, layer)
    if x.shape.rank == 2:
      return tf.transpose(logits, [1, 0, 2])
    return tf.transpose(logits, [0, 2, 1, 3])  # With an axis of clients.

  def example_loss(logits: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_sum(losses * token_weights(y, padding), -1)

  spec = tf.TensorSpec([None, steps], tf.int32)
  model_class = TokenMeanModel if padding == 'tff' else models.Model
  return model_class(
    initial_weights=weights,
    forward=forward,
    example_loss=example_loss,
    metrics=collections.OrderedDict((n, accuracy(ignored)) for n, ignored in metrics.items()),
    x_spec=spec,
    y_spec=spec,
    client_axis=True,
  )


def dense_rows(h: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
  """Applies a dense layer to [..., T, B, size] as one product over all steps and examples."""
  shape = tf.shape(h)
  leading = shape[:-3]
  rows = tf.reshape(h, tf.concat([leading, [shape[-3] * shape[-2], h.shape[-1]]], 0))
  out = layers.dense(rows, kernel, bias)
  out = tf.reshape(out, tf.concat([shape[:-1], [kernel.shape[-1]]], 0))
  return tf.ensure_shape(out, [*h.shape[:-1], kernel.shape[-1]])
