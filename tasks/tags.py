"""Tag prediction on Stack Overflow: bags of words, logistic regression, summed cross-entropy."""

import collections
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_adaptive_tasks import preparation
from tff_adaptive_tasks.models import layers

_TOP = 5
Normalisation = Literal['published', 'tff']


def to_bags(
  features: Mapping[str, np.ndarray], words: Mapping[bytes, int], tags: Mapping[bytes, int]
) -> tuple[np.ndarray, np.ndarray]:
  """Sentences with their titles to word counts, and tags to indicators, of one client.

  The counts are bytes, a quarter of the shares' size; the model divides by their sum. See
  `preparation.count_words` and `mark_tags`.

  Returns:
    uint8 [n, words + 1] and float32 [n, tags].
  """
  x = preparation.count_words(features['tokens'], features['title'], words)
  return x, preparation.mark_tags(features['tags'], tags)


def build_model(
  num_words: int, num_tags: int, seed: int, normalisation: Normalisation = 'published'
) -> layers.SummedLossModel:
  """One logistic regression a tag; 10,000 words and 500 tags give 5,000,500 parameters.

  The loss of a batch is the sum over its examples of the mean over tags of the binary
  cross-entropy, as in TFF's baseline; the paper's client rate of 100 belongs to it.

  `normalisation` says what a word's count is divided by: 'published', all words of the sentence, as
  in the authors' published code; 'tff', those of the vocabulary, as in TFF 0.87's baseline. The
  metrics are the recall among the five highest tags and the precision at probability 0.5.
  """

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    counts = tf.cast(x, tf.float32)
    counted = counts if normalisation == 'published' else counts[..., :-1]
    total = tf.reduce_sum(counted, -1, keepdims=True)
    shares = tf.math.divide_no_nan(counts[..., :-1], total)
    return layers.dense(tf.cast(shares, weights[0].dtype), *weights)

  def example_loss(logits: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)
    return tf.reduce_mean(losses, -1)

  def recall(logits: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    top = tf.math.top_k(logits, min(_TOP, num_tags)).indices
    found = tf.gather(y, top, batch_dims=len(y.shape) - 1)
    return tf.reduce_sum(found, -1), tf.reduce_sum(y, -1)

  def precision(logits: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    chosen = tf.cast(logits > 0, tf.float32)
    return tf.reduce_sum(chosen * y, -1), tf.reduce_sum(chosen, -1)

  return layers.SummedLossModel(
    initial_weights=layers.perceptron_weights(seed, [num_words, num_tags]),
    forward=forward,
    example_loss=example_loss,
    metrics=collections.OrderedDict(recall_at_5=recall, precision=precision),
    x_spec=tf.TensorSpec([None, num_words + 1], tf.uint8),
    y_spec=tf.TensorSpec([None, num_tags], tf.float32),
    client_axis=True,
  )
