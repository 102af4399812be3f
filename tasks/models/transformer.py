"""A causal transformer for characters. Like GPT-2, it normalises before attention and perceptron.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.3.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive_tasks.models import language, layers

_EPSILON = 1e-5
_BLOCK = 12  # The number of weights of a block.


def initial_weights(
  seed: int, vocabulary: int, steps: int, size: int, blocks: int
) -> tuple[np.ndarray, ...]:
  """Draws the weights: embedding, positions, blocks, last normalisation and output layer, in order.

  Args:
    seed: The seed. Embeddings and kernels are normal with deviation 0.02, in the last layers of
      attention and perceptron with 0.02 / sqrt(2 blocks). Biases and shifts are 0, scales 1.
    vocabulary: Number of tokens.
    steps: T, the length of a sequence.
    size: Number of units of a layer, a multiple of `heads` of `run`.
    blocks: Number of blocks, each with attention and a perceptron.
  """
  draw = layers.Initializer(seed)
  # As in GPT-2: each block adds two such layers to the residual stream.
  last = 0.02 / np.sqrt(2 * blocks)

  def norm() -> Iterator[np.ndarray]:
    yield np.ones(size, np.float32)
    yield layers.zeros(size)

  def dense(inputs: int, outputs: int, deviation: float = 0.02) -> Iterator[np.ndarray]:
    yield draw.normal(deviation, inputs, outputs)
    yield layers.zeros(outputs)

  weights = [draw.normal(0.02, vocabulary, size), draw.normal(0.02, steps, size)]
  for _ in range(blocks):
    weights += [*norm(), *dense(size, 3 * size), *dense(size, size, last)]
    weights += [*norm(), *dense(size, 4 * size), *dense(4 * size, size, last)]
  return (*weights, *norm(), *dense(size, vocabulary))


def run(weights: Any, embedded: tf.Tensor, heads: int) -> tf.Tensor:
  """Returns the logits, [T, B, vocabulary], for B sequences of T tokens.

  Args:
    weights: `initial_weights` without the embedding.
    embedded: float [T, B, size]. Like the weights, it may have a leading axis of clients.
    heads: Number of attention heads.
  """
  positions, *rest = weights
  h = _swap(embedded, -3) + _over_examples(positions)
  blocks = rest[:-4]
  scale, shift, kernel, bias = rest[-4:]
  for first in range(0, len(blocks), _BLOCK):
    h = _block(h, blocks[first : first + _BLOCK], heads)
  return _swap(language.dense_rows(_norm(h, scale, shift), kernel, bias), -3)


def _block(h: tf.Tensor, weights: Any, heads: int) -> tf.Tensor:
  """Applies a block to h [..., B, T, size]: adds attention to h, then a perceptron of the sum."""
  mixed = language.dense_rows(_norm(h, *weights[:2]), *weights[2:4])
  h += language.dense_rows(_attention(mixed, heads), *weights[4:6])
  inner = tf.nn.gelu(language.dense_rows(_norm(h, *weights[6:8]), *weights[8:10]))
  return h + language.dense_rows(inner, *weights[10:])


def _attention(mixed: tf.Tensor, heads: int) -> tf.Tensor:
  """Returns causal attention [..., T, size]; `mixed` has query, key and value, [..., T, 3 size]."""
  steps = mixed.shape[-2]
  size = mixed.shape[-1] // 3
  shape = tf.concat([tf.shape(mixed)[:-1], [heads, size // heads]], 0)
  split: Callable = lambda part: _swap(tf.reshape(part, shape), -3)  # noqa: E731
  query, key, value = map(split, tf.split(mixed, 3, -1))
  scores = tf.matmul(query, key, transpose_b=True) / (size // heads) ** 0.5
  # A step does not see those after it.
  later = np.triu(np.full([steps, steps], -np.inf, np.float32), 1)
  attended = _swap(tf.matmul(tf.nn.softmax(scores + later), value), -3)
  return tf.reshape(attended, tf.concat([tf.shape(mixed)[:-1], [size]], 0))


def _norm(h: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
  mean, variance = tf.nn.moments(h, -1, keepdims=True)
  scale = _over_examples(scale[..., tf.newaxis, :])
  shift = _over_examples(shift[..., tf.newaxis, :])
  return (h - mean) * tf.math.rsqrt(variance + _EPSILON) * scale + shift


def _over_examples(x: tf.Tensor) -> tf.Tensor:
  """Inserts an axis for the examples: [..., T, size] becomes [..., 1, T, size]."""
  return x[..., tf.newaxis, :, :]


def _swap(x: tf.Tensor, axis: int) -> tf.Tensor:
  """Exchanges an axis and the one after it."""
  order = list(range(x.shape.rank))
  order[axis], order[axis + 1] = order[axis + 1], order[axis]
  return tf.transpose(x, order)
