"""Pieces that the tasks' models are put together from: initial weights and layers.

Layers are pure functions of tensors. Those without convolutions are written for any number of
leading dimensions, so that a model may take a leading axis of clients on weights and data alike.
"""

from collections.abc import Callable, Sequence
from typing import Optional

import numpy as np
import tensorflow as tf

from tff_adaptive import models


class Initializer:
  """Draws initial weights from a seed; the same seed gives the same weights everywhere.

  The distributions are those of Keras's initializers of the same names.
  """

  def __init__(self, seed: int):
    self._rng = np.random.default_rng([seed, 28])

  def glorot_uniform(self, *shape: int) -> np.ndarray:
    """Uniform within sqrt(6 / (fan in + fan out))."""
    limit = np.sqrt(6 / sum(_fans(shape)))
    return self._rng.uniform(-limit, limit, shape).astype(np.float32)

  def he_normal(self, *shape: int) -> np.ndarray:
    """Normal cut off at two standard deviations, with variance 2 / fan in after the cut."""
    # 0.8796 is the standard deviation of a standard normal cut off at +-2.
    scale = np.sqrt(2 / _fans(shape)[0]) / 0.87962566103423978
    return (scale * self._truncated_normal(shape)).astype(np.float32)

  def normal(self, stddev: float, *shape: int) -> np.ndarray:
    """Normal with mean 0."""
    return (stddev * self._rng.standard_normal(shape)).astype(np.float32)

  def uniform(self, limit: float, *shape: int) -> np.ndarray:
    """Uniform within +-limit."""
    return self._rng.uniform(-limit, limit, shape).astype(np.float32)

  def orthogonal(self, rows: int, columns: int) -> np.ndarray:
    """A matrix with orthonormal rows or columns, whichever are fewer."""
    a = self._rng.standard_normal((max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(a)
    q = q * np.sign(np.diag(r))
    return (q.T if rows < columns else q).astype(np.float32)

  def _truncated_normal(self, shape):
    x = self._rng.standard_normal(shape)
    while True:
      far = np.abs(x) > 2
      if not far.any():
        return x
      x[far] = self._rng.standard_normal(int(far.sum()))


def _fans(shape: Sequence[int]) -> tuple[int, int]:
  """Inputs and outputs of a unit: of a matrix [in, out] or a kernel [height, width, in, out]."""
  receptive = int(np.prod(shape[:-2]))
  return receptive * shape[-2], receptive * shape[-1]


def zeros(*shape: int) -> np.ndarray:
  """A float32 array of zeros."""
  return np.zeros(shape, np.float32)


def dense(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
  """x kernel + bias.

  Args:
    x: [..., B, inputs].
    kernel: [inputs, outputs], or with the leading dimensions of x.
    bias: [outputs], or with the leading dimensions of x.

  Returns:
    [..., B, outputs].
  """
  return tf.matmul(x, kernel) + bias[..., tf.newaxis, :]


def conv(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, padding: str = 'VALID') -> tf.Tensor:
  """A convolution with stride 1 on [B, height, width, channels]."""
  return tf.nn.conv2d(x, kernel, 1, padding) + bias


def flatten(x: tf.Tensor) -> tf.Tensor:
  """[B, ...] with known inner dimensions to [B, their product]."""
  return tf.reshape(x, [-1, int(np.prod(x.shape[1:]))])


class SummedLossModel(models.Model):
  """A model whose training loss is the sum, not the mean, over a batch's examples."""

  def loss_and_metrics(self, weights, x, y, *, shares=None, **options):
    """As `models.Model.loss_and_metrics`, with the summed loss."""
    loss, means = super().loss_and_metrics(weights, x, y, shares=shares, **options)
    if shares is None:
      count = tf.shape(y)[-len(self.input_spec['y'].shape)]
    else:
      count = tf.math.count_nonzero(shares, -1)
    return loss * tf.cast(count, loss.dtype), means


def classifier(
  initial_weights: Sequence[np.ndarray],
  forward: Callable,
  x_shape: Sequence[int],
  *,
  x_dtype: tf.DType = tf.float32,
  penalty: Optional[Callable] = None,
  client_axis: bool = False,
) -> models.Model:
  """A model with softmax cross-entropy and accuracy.

  Args:
    initial_weights: The weights, float32.
    forward: (weights, x, training, seed) -> logits [..., B, classes].
    x_shape: The shape of one input.
    x_dtype: The dtype of the inputs.
    penalty: As in `models.Model`.
    client_axis: As in `models.Model`.

  Returns:
    A `models.Model` whose labels are int32 class numbers.
  """
  return models.Model(
    initial_weights=initial_weights,
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    metrics={'accuracy': models.accuracy},
    x_spec=tf.TensorSpec([None, *x_shape], x_dtype),
    y_spec=tf.TensorSpec([None], tf.int32),
    penalty=penalty,
    client_axis=client_axis,
  )


def perceptron_weights(seed: int, widths: Sequence[int]) -> tuple[np.ndarray, ...]:
  """Kernels (Glorot uniform) and biases (zero) of dense layers of the given widths."""
  draw = Initializer(seed)
  weights = []
  for n, m in zip(widths[:-1], widths[1:]):
    weights += [draw.glorot_uniform(n, m), zeros(m)]
  return tuple(weights)


def perceptron(
  seed: int,
  widths: Sequence[int],
  x_shape: Optional[Sequence[int]] = None,
  prepare: Optional[Callable[[tf.Tensor], tf.Tensor]] = None,
) -> models.Model:
  """A multilayer perceptron with ReLU between its layers, as a classifier.

  Args:
    seed: Draws the initial weights.
    widths: Inputs, hidden layers and classes.
    x_shape: The shape of one input, whose size is widths[0]; [widths[0]] by default.
    prepare: Applied to the inputs first, element by element; nothing by default.

  Returns:
    A `models.Model` that also takes a leading client axis.
  """
  x_shape = [widths[0]] if x_shape is None else list(x_shape)

  def forward(weights, x, training, seed):
    del training, seed
    x = tf.convert_to_tensor(x)
    x = x if prepare is None else prepare(x)
    batch = tf.shape(x)[: x.shape.rank - len(x_shape)]
    h = tf.reshape(x, tf.concat([batch, [widths[0]]], 0)) if len(x_shape) > 1 else x
    for i in range(0, len(weights), 2):
      h = dense(h if i == 0 else tf.nn.relu(h), weights[i], weights[i + 1])
    return h

  return classifier(perceptron_weights(seed, widths), forward, x_shape, client_axis=True)
