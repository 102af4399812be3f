"""Cox's proportional hazards: a loss and a metric that couple the examples of a batch."""

import numpy as np
import tensorflow as tf


def cox_losses(scores: tf.Tensor, y: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
  """The terms of Cox's negative partial log-likelihood, whose mean is a batch's loss.

  E_i (log sum_j exp(s_j) - s_i) over those j of the batch that lived longer than i or, standing no
  later in the batch, as long.

  Args:
    scores: s, float [..., B]; larger for a shorter life.
    y: [..., B, 2], the event E and the time T.
    counts: bool [..., B], who is no padding.

  Returns:
    float [..., B].
  """
  event, time = y[..., 0], y[..., 1]
  mine, other = time[..., :, tf.newaxis], time[..., tf.newaxis, :]
  row = tf.range(tf.shape(scores)[-1])
  is_before = row[tf.newaxis, :] <= row[:, tf.newaxis]
  at_risk = ((other > mine) | (tf.equal(other, mine) & is_before)) & counts[..., tf.newaxis, :]
  at_risk |= tf.equal(row[tf.newaxis, :], row[:, tf.newaxis])  # Of padding, too: no logarithm of 0.
  below = tf.constant(-np.inf, scores.dtype)
  # Of differences, so that a gradient that vanishes is 0: Adam would make steps of its rounding.
  difference = scores[..., tf.newaxis, :] - scores[..., :, tf.newaxis]
  return event * tf.reduce_logsumexp(tf.where(at_risk, difference, below), -1)


def concordance(scores: tf.Tensor, y: tf.Tensor, counts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Harrell's concordance index: of the pairs that can be compared, how many are in order.

  Arguments as of `cox_losses`. i and j can be compared if i's event was seen, and j lived longer or
  was last seen at that time; equal scores are half in order.

  Returns:
    For each i, float [..., B], its pairs in order, and its pairs.
  """
  event, time = y[..., 0] > 0.5, y[..., 1]
  mine, other = time[..., :, tf.newaxis], time[..., tf.newaxis, :]
  is_later = (mine < other) | (tf.equal(mine, other) & ~event[..., tf.newaxis, :])
  pair = event[..., :, tf.newaxis] & is_later & counts[..., tf.newaxis, :]
  difference = scores[..., :, tf.newaxis] - scores[..., tf.newaxis, :]
  pairs = tf.cast(pair, scores.dtype)
  return tf.reduce_sum(pairs * (tf.sign(difference) + 1) / 2, -1), tf.reduce_sum(pairs, -1)
