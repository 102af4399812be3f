"""ResNet-18 with group normalisation, for CIFAR in "Adaptive Federated Optimization".

The architecture is that of TFF's baseline (`create_resnet18`), which down-samples in the stem only.
Three parts follow the paper and not TFF 0.87's baseline: group normalisation with 2 groups (Keras's
layer has 32), the L2 term in the loss, and random crops and flips of training images.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks.models import layers

CROP = 24
_L2 = 1e-4  # Weight of the sum of squares of all kernels and the last bias in the loss.
_FILTERS = (64, 128, 256, 512)
_BLOCKS = 2


def build(seed: int, num_classes: int, groups: int = 2) -> models.Model:
  """Builds the ResNet-18 of this module, which has 11,227,812 parameters with 100 classes.

  Args:
    seed: The seed of the weights. As in TFF they are He normal, and N(0, 0.01^2) in the last layer.
    num_classes: Number of classes.
    groups: Number of groups of channels that a normalisation layer has.

  Returns:
    A model of uint8 images [32, 32, 3] that also accepts a leading client axis.
  """
  draw = layers.Initializer(seed)
  weights = []
  decayed = []  # The places of weights with an L2 penalty.
  for kind, *shape in _layers(num_classes):
    if kind == 'norm':
      weights += [np.ones(shape, np.float32), layers.zeros(*shape)]
    elif kind == 'conv':
      decayed.append(len(weights))
      weights.append(draw.he_normal(*shape))
    else:
      decayed += [len(weights), len(weights) + 1]
      weights += [draw.normal(0.01, *shape), layers.zeros(shape[1])]

  # With an axis of clients the weights have one more.
  ranks = [np.ndim(w) for w in weights]

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    if not training:
      seed = None  # Central crops.
    x = prepare(x, seed)
    return apply(weights, tf.cast(x, weights[0].dtype), groups)

  def penalty(weights: Any) -> tf.Tensor:
    return _L2 * tf.add_n([squares(weights[i], ranks[i]) for i in decayed])

  def squares(w: tf.Tensor, rank: int) -> tf.Tensor:
    return tf.reduce_sum(tf.square(w), list(range(-rank, 0)))  # Not over a client axis.

  return layers.classifier(weights, forward, [32, 32, 3], x_dtype=tf.uint8, penalty=penalty)


def _layers(num_classes: int) -> Iterator[tuple]:
  """Yields (kind, *shape) of the layers with weights, in the order in which `apply` uses them."""
  yield ('conv', 7, 7, 3, _FILTERS[0])
  yield ('norm', _FILTERS[0])
  channels = _FILTERS[0]
  for stage, filters in enumerate(_FILTERS):
    for block in range(_BLOCKS):
      if stage or block:
        yield ('norm', channels)
      yield ('conv', 3, 3, channels, filters)
      yield ('norm', filters)
      yield ('conv', 3, 3, filters, filters)
      if channels != filters:
        yield ('conv', 1, 1, channels, filters)
        yield ('norm', filters)
      channels = filters
  yield ('norm', channels)
  yield ('dense', channels, num_classes)


def apply(weights: Any, x: tf.Tensor, groups: int) -> tf.Tensor:
  """Returns logits of images [..., B, height, width, 3]; `_layers` has the order of `weights`."""
  left = iter(weights)

  def conv(x: tf.Tensor, stride: int = 1) -> tf.Tensor:
    return layers.conv(x, next(left), None, stride, 'SAME')

  def norm(x: tf.Tensor) -> tf.Tensor:
    return layers.group_norm(x, next(left), next(left), groups)

  x = tf.nn.relu(norm(conv(x, 2)))
  x = layers.max_pool(x, 3, 2, 'SAME')
  for stage, filters in enumerate(_FILTERS):
    for block in range(_BLOCKS):
      residual = x
      if stage or block:  # The first block follows a normalisation.
        residual = tf.nn.relu(norm(x))
      residual = conv(residual)
      residual = conv(tf.nn.relu(norm(residual)))
      if x.shape[-1] != filters:
        x = norm(conv(x))
      x = residual + x
  x = tf.reduce_mean(tf.nn.relu(norm(x)), [-3, -2])
  return layers.dense(x, next(left), next(left))


def prepare(x: tf.Tensor, seed: tf.Tensor | None) -> tf.Tensor:
  """Crops uint8 images [..., B, 32, 32, 3] to 24 x 24 and standardises each image.

  With a seed, [2] or [G, 2] for G clients, crops and flips are random. Otherwise crops are central.
  """
  margin = x.shape[-2] - CROP

  def cut(x: tf.Tensor, choice: tf.Tensor) -> tf.Tensor:
    # Each image has its own numbers: the row and column of the crop, and whether to flip it.
    x = crop(x, choice[:, :2] % (margin + 1), CROP)
    return flip(x, tf.equal(choice[:, 2] % 2, 0))

  if seed is None:
    middle = slice(margin // 2, margin // 2 + CROP)
    x = x[..., middle, middle, :]
  else:
    # Of numbers below a multiple of 2 and of `margin + 1` all remainders are equally likely.
    x = layers.of_images(cut, x, choices(x, seed, 3, (margin + 1) ** 2 * 2))
  return tf.image.per_image_standardization(tf.cast(x, tf.float32))


def choices(x: tf.Tensor, seed: tf.Tensor, count: int, below: int) -> tf.Tensor:
  """Draws integers in [0, below): [B, count] for images x, or [G, B, count] for G clients."""
  shape = [tf.shape(x)[-4], count]
  return models.with_seed(
    lambda s: tf.random.stateless_uniform(shape, s, maxval=below, dtype=tf.int32), seed
  )


def crop(x: tf.Tensor, corner: tf.Tensor, size: int) -> tf.Tensor:
  """Crops images to [B, size, size, channels]; `corner` has each (row, column), int [B, 2]."""
  steps = tf.range(size)
  x = tf.gather(x, corner[:, :1] + steps, axis=1, batch_dims=1)
  return tf.gather(x, corner[:, 1:] + steps, axis=2, batch_dims=1)


def flip(x: tf.Tensor, is_flipped: tf.Tensor) -> tf.Tensor:
  """Mirrors images left to right where is_flipped, bool [B], is True."""
  return tf.where(is_flipped[:, tf.newaxis, tf.newaxis, tf.newaxis], x[:, :, ::-1], x)
