"""Parts of the tasks' models: initial weights and layers.

Layers are pure functions of tensors. All of them also accept a leading axis of clients on both
weights and data.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import models


class Initializer:
  """Draws initial weights from a seed; the same seed gives the same weights everywhere.

  The distributions are those of Keras's initializers of the same names.
  """

  def __init__(self, seed: int):
    # 28 tells these draws from others with the same seed, such as those of partitions.
    self._rng = np.random.default_rng([seed, 28])

  def glorot_uniform(self, *shape: int) -> np.ndarray:
    """Draws uniformly from [-limit, limit], where limit is sqrt(6 / (fan in + fan out))."""
    limit = np.sqrt(6 / sum(_fans(shape)))
    return self._rng.uniform(-limit, limit, shape).astype(np.float32)

  def he_normal(self, *shape: int) -> np.ndarray:
    """Draws from a normal distribution truncated at two deviations, with variance 2 / fan in."""
    # 0.8796 is the standard deviation of a standard normal cut off at +-2.
    scale = np.sqrt(2 / _fans(shape)[0]) / 0.87962566103423978
    return (scale * self._truncated_normal(shape)).astype(np.float32)

  def normal(self, stddev: float, *shape: int) -> np.ndarray:
    """Draws from a normal distribution with mean 0."""
    return (stddev * self._rng.standard_normal(shape)).astype(np.float32)

  def uniform(self, limit: float, *shape: int) -> np.ndarray:
    """Draws uniformly from [-limit, limit]."""
    return self._rng.uniform(-limit, limit, shape).astype(np.float32)

  def orthogonal(self, rows: int, columns: int) -> np.ndarray:
    """Draws a matrix with orthonormal rows or columns, whichever are fewer."""
    a = self._rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(a)
    # Without this the distribution would not be uniform over orthogonal matrices.
    q = q * np.sign(np.diag(r))
    if rows < columns:
      q = q.T
    return q.astype(np.float32)

  def _truncated_normal(self, shape: Sequence[int]) -> np.ndarray:
    # What lies beyond two deviations is drawn again, as Keras does.
    x = self._rng.standard_normal(shape)
    while True:
      far = np.abs(x) > 2
      if not far.any():
        return x
      x[far] = self._rng.standard_normal(int(far.sum()))


def _fans(shape: Sequence[int]) -> tuple[int, int]:
  """Returns fan in and fan out of a matrix [in, out] or a kernel [height, width, in, out]."""
  receptive = int(np.prod(shape[:-2]))
  return receptive * shape[-2], receptive * shape[-1]


def zeros(*shape: int) -> np.ndarray:
  """Returns a float32 array of zeros."""
  return np.zeros(shape, np.float32)


def dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
  """Returns x @ kernel + bias, [..., B, outputs]; kernel and bias may have x's leading axes."""
  # A vector is added directly: a new axis would cost two more operations in each step.
  if len(bias.shape) > 1:
    bias = bias[..., tf.newaxis, :]
  return tf.matmul(x, kernel) + bias


def conv(
  x: tf.Tensor,
  kernel: tf.Tensor,
  bias: tf.Tensor | None = None,
  stride: int = 1,
  padding: str = 'VALID',
) -> tf.Tensor:
  """Convolves images. With a leading axis of clients, each client's images have their own kernel.

  Images are [..., B, height, width, inputs], the kernel [..., rows, columns, inputs, outputs]. For
  stride and padding see `tf.nn.conv2d`.
  """
  if kernel.shape.rank == 4:
    y = tf.nn.conv2d(x, kernel, stride, padding)
  elif not _groups_have_gradients():
    clients = zip(tf.unstack(x), tf.unstack(kernel))
    y = tf.stack([tf.nn.conv2d(images, one, stride, padding) for images, one in clients])
  else:
    # One grouped convolution: the clients' images are groups of channels.
    y = tf.nn.conv2d(_join_channels(x), _join_channels(kernel), stride, padding)
    num_clients = tf.shape(kernel)[0]
    y = tf.reshape(y, tf.concat([tf.shape(y)[:-1], [num_clients, kernel.shape[-1]]], 0))
    y = tf.transpose(y, [3, 0, 1, 2, 4])
  if bias is None:
    return y
  return y + _for_images(bias)


@functools.cache
def _groups_have_gradients() -> bool:
  """Returns whether grouped convolutions have gradients; on a CPU this needs oneDNN."""
  with tf.init_scope(), contextlib.suppress(tf.errors.InvalidArgumentError):
    one = tf.ones([1, 1, 1, 2])
    tf.raw_ops.Conv2DBackpropInput(
      input_sizes=[1, 1, 1, 2], filter=one, out_backprop=one, strides=[1] * 4, padding='VALID'
    )
    return True
  return False


def _join_channels(x: tf.Tensor) -> tf.Tensor:
  """Reshapes [G, a, b, c, channels] to [a, b, c, G * channels] for G clients."""
  x = tf.transpose(x, [1, 2, 3, 0, 4])
  return tf.reshape(x, tf.concat([tf.shape(x)[:3], [tf.reduce_prod(tf.shape(x)[3:])]], 0))


def _for_images(vector: tf.Tensor) -> tf.Tensor:
  """Reshapes [..., channels] to match [..., B, height, width, channels]."""
  return vector[..., tf.newaxis, tf.newaxis, tf.newaxis, :]


def max_pool(x: tf.Tensor, size: int, stride: int, padding: str = 'VALID') -> tf.Tensor:
  """Returns the maxima of size x size windows of images [..., height, width, channels]."""
  return of_images(lambda images: tf.nn.max_pool2d(images, size, stride, padding), x)


def of_images(function: Callable, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
  """Applies `function` to images x and `others` [..., k], with their leading axes joined to one."""
  x = tf.convert_to_tensor(x)
  if x.shape.rank == 4:
    return function(x, *others)
  flat = tf.reshape(x, [-1, *x.shape[-3:]])
  y = function(flat, *(tf.reshape(o, [-1, o.shape[-1]]) for o in others))
  return tf.reshape(y, tf.concat([tf.shape(x)[:-3], y.shape[1:]], 0))


def flatten(x: tf.Tensor) -> tf.Tensor:
  """Flattens images [..., height, width, channels] to vectors."""
  return tf.reshape(x, tf.concat([tf.shape(x)[:-3], [int(np.prod(x.shape[-3:]))]], 0))


def group_norm(
  x: tf.Tensor, scale: tf.Tensor, offset: tf.Tensor, groups: int, epsilon: float = 1e-3
) -> tf.Tensor:
  """Normalises groups of channels of images [..., B, height, width, C] (Wu and He, 2018).

  Each group of an image gets mean 0 and variance 1 (equation 1), before scale and offset [..., C].
  """
  grouped = tf.reshape(x, tf.concat([tf.shape(x)[:-1], [groups, x.shape[-1] // groups]], 0))
  mean, variance = tf.nn.moments(grouped, [-4, -3, -1], keepdims=True)
  normed = (grouped - mean) * tf.math.rsqrt(variance + epsilon)
  return tf.reshape(normed, tf.shape(x)) * _for_images(scale) + _for_images(offset)


class SummedLossModel(models.Model):
  """A model whose training loss is the sum over a batch's examples, not the mean."""

  def batch_loss(self, mean_loss: tf.Tensor, y: tf.Tensor, shares: tf.Tensor | None) -> tf.Tensor:
    """Returns the sum of the examples' losses."""
    if shares is None:
      # From the end, because an axis of clients may come first.
      count = tf.shape(y)[-len(self.input_spec['y'].shape)]
    else:
      count = tf.math.count_nonzero(shares, -1)
    return mean_loss * tf.cast(count, mean_loss.dtype)


def classifier(
  initial_weights: Sequence[np.ndarray],
  forward: Callable,
  x_shape: Sequence[int],
  *,
  x_dtype: tf.DType = tf.float32,
  penalty: Callable | None = None,
  features: Callable | None = None,
) -> models.Model:
  """Builds a model of inputs [B, *x_shape] and int32 classes, with cross-entropy and accuracy.

  The model accepts a leading client axis, and so must `forward` and `penalty`; see `models.Model`.
  """
  return models.Model(
    initial_weights=initial_weights,
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    metrics={'accuracy': models.accuracy},
    x_spec=tf.TensorSpec([None, *x_shape], x_dtype),
    y_spec=tf.TensorSpec([None], tf.int32),
    penalty=penalty,
    client_axis=True,
    features=features,
  )


def perceptron_weights(seed: int, widths: Sequence[int]) -> tuple[np.ndarray, ...]:
  """Draws kernels (Glorot uniform) and zero biases; `widths` has the sizes of input and layers."""
  draw = Initializer(seed)
  weights = []
  for n, m in itertools.pairwise(widths):
    weights += [draw.glorot_uniform(n, m), zeros(m)]
  return tuple(weights)


def perceptron(
  seed: int,
  widths: Sequence[int],
  x_shape: Sequence[int] | None = None,
  prepare: Callable[[tf.Tensor], tf.Tensor] | None = None,
) -> models.Model:
  """Builds a multilayer perceptron with ReLU between its layers, as a classifier.

  `widths` has the number of inputs, the number of units of each hidden layer, and the number of
  classes. An input has the shape `x_shape`. `prepare`, an elementwise function, is applied first.
  """
  x_shape = list(x_shape or [widths[0]])

  def before_last(weights: Any, x: tf.Tensor) -> tf.Tensor:
    x = tf.convert_to_tensor(x)
    if prepare is not None:
      x = prepare(x)
    h = x
    if len(x_shape) > 1:
      batch = tf.shape(x)[: x.shape.rank - len(x_shape)]
      h = tf.reshape(x, tf.concat([batch, [widths[0]]], 0))
    for i in range(0, len(weights) - 2, 2):
      h = tf.nn.relu(dense(h, weights[i], weights[i + 1]))
    return h

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    return dense(before_last(weights, x), weights[-2], weights[-1])

  def features(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    return before_last(weights, x)

  model = classifier(perceptron_weights(seed, widths), forward, x_shape, features=features)
  # Keras would need a layer for `prepare`, which may be any function.
  if prepare is None:
    model.to_keras = functools.partial(perceptron_in_keras, widths, x_shape)
  return model


def perceptron_in_keras(
  widths: Sequence[int], x_shape: Sequence[int], weights: Sequence[Any]
) -> tf.keras.Model:
  """Returns the Keras model that predicts as `perceptron` does, with the given weights."""
  parts = [tf.keras.Input(x_shape, name='x')]
  if len(x_shape) > 1:
    parts.append(tf.keras.layers.Flatten())
  for units in widths[1:-1]:
    parts.append(tf.keras.layers.Dense(units, 'relu'))
  parts.append(tf.keras.layers.Dense(widths[-1]))
  model = tf.keras.Sequential(parts)
  model.set_weights([np.asarray(weight) for weight in weights])
  return model
