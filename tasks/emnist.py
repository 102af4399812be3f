"""EMNIST by writer: character recognition and the autoencoder of "Adaptive Federated Optimization".

The data are TFF's (`tff.simulation.datasets.emnist`): 28 x 28 pixels in [0, 1], 1 is background
and 0 is ink. Labels 0-9 are digits, 10-35 upper-case and 36-61 lower-case letters.
"""

import collections
import functools
import string
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import preparation, task as task_lib
from tff_adaptive_tasks.data import tff_sqlite
from tff_adaptive_tasks.models import layers

_FEATURES = {
  'pixels': tf.io.FixedLenFeature([28, 28], tf.float32),
  'label': tf.io.FixedLenFeature([], tf.int64),
}
_CLASSES = (*map(str, range(10)), *string.ascii_uppercase, *string.ascii_lowercase)
# `prepare_autoencoder` for users of an exported model: (pixels - 1) / -1.
_INK = preparation.Preparation(mean=1.0, deviation=-1.0, shape=(784,), is_numbers=True)
_AUTOENCODER_WIDTHS = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
_CODE_LAYER = 3


def load_recognition(
  data_dir: str | None = None,
  only_digits: bool = False,
  model: Literal['cnn_dropout', '2nn'] = 'cnn_dropout',
) -> task_lib.Task:
  """Loads the task of character recognition.

  Args:
    data_dir: The folder with `emnist_all.sqlite`; None downloads it.
    only_digits: Whether to use the ten digits instead of all 62 characters.
    model: 'cnn_dropout' is the CNN of Reddi et al. (2021). '2nn' has two hidden layers of 200 units
      and trains about 20 times as fast on a CPU. The names are those of TFF's baseline.

  Returns:
    The task; its validation data are all clients' test examples.

  Raises:
    tasks.DataError: If the data cannot be used.
  """
  num_classes = _num_classes(only_digits)
  builders: dict[str, Callable[..., models.Model]] = {'2nn': build_2nn, 'cnn_dropout': build_cnn}
  return _load(
    data_dir,
    only_digits,
    prepare_recognition,
    name='emnist_cr',
    build_model=functools.partial(builders[model], num_classes=num_classes),
    preparation=preparation.Preparation(classes=_CLASSES[:num_classes], shape=(28, 28, 1)),
  )


def load_autoencoder(data_dir: str | None = None, only_digits: bool = False) -> task_lib.Task:
  """Loads the task of an autoencoder; for arguments, results and errors see `load_recognition`."""
  return _load(
    data_dir,
    only_digits,
    prepare_autoencoder,
    name='emnist_ae',
    build_model=build_autoencoder,
    metric='mse',
    preparation=_INK,
  )


def _load(
  data_dir: str | None, only_digits: bool, prepare: tff_sqlite.Preprocess, **task: Any
) -> task_lib.Task:
  # A label out of range would be an output that the model has not.
  ranges = {'label': (0, _num_classes(only_digits) - 1)}
  prefix = 'digits_only_' if only_digits else 'all_'
  return tff_sqlite.load_task(
    'emnist_all.sqlite', data_dir, _FEATURES, prepare, ranges, prefix, **task
  )


def _num_classes(only_digits: bool) -> int:
  return 10 if only_digits else 62


def prepare_recognition(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """Returns the pixels, float32 [n, 28, 28, 1], and labels, int32 [n], of TFF's features."""
  return features['pixels'][..., np.newaxis], features['label'].astype(np.int32)


def prepare_autoencoder(features: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
  """Returns 1 - pixels, float32 [n, 784], of TFF's features, as inputs and as targets."""
  x = 1 - features['pixels'].reshape(-1, 784)
  return x, x


def build_cnn(
  seed: int, num_classes: int = 62, shape: tuple[int, int, int] = (28, 28, 1)
) -> models.Model:
  """Builds the CNN of Reddi et al. (2021): two convolutions, two dense layers, and dropout.

  By default it has 1,206,590 parameters. The shape (32, 32, 3) gives pfl-research's CIFAR-10 CNN.
  """
  draw = layers.Initializer(seed)
  height, width, channels = shape
  weights = (
    *(draw.glorot_uniform(3, 3, channels, 32), layers.zeros(32)),
    *(draw.glorot_uniform(3, 3, 32, 64), layers.zeros(64)),
    # Two convolutions without padding take 4 pixels off each side, and the pooling halves it.
    *(draw.glorot_uniform((height - 4) // 2 * ((width - 4) // 2) * 64, 128), layers.zeros(128)),
    *(draw.glorot_uniform(128, num_classes), layers.zeros(num_classes)),
  )

  def features(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    if not training:
      seed = None  # No dropout.
    k1, b1, k2, b2, k3, b3, _, _ = weights
    h = tf.nn.relu(layers.conv(x, k1, b1))
    h = tf.nn.relu(layers.conv(h, k2, b2))
    h = layers.flatten(layers.max_pool(h, 2, 2))
    h = models.dropout(h, 0.25, seed, salt=0)
    return models.dropout(tf.nn.relu(layers.dense(h, k3, b3)), 0.5, seed, salt=1)

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    return layers.dense(features(weights, x, training, seed), weights[-2], weights[-1])

  return layers.classifier(weights, forward, list(shape), features=features)


def build_2nn(seed: int, num_classes: int = 62) -> models.Model:
  """Builds TFF's perceptron, two hidden layers of 200 (209,662 parameters for 62 classes)."""
  return layers.perceptron(seed, [784, 200, 200, num_classes], [28, 28, 1])


def build_autoencoder(seed: int) -> layers.SummedLossModel:
  """Builds the autoencoder 784-1000-500-250-30-250-500-1000-784 (2,837,314 parameters).

  The layer of 30 units is linear, and all other layers have a sigmoid. An example's loss is the
  mean squared error over its pixels. A batch's loss is the sum over its examples, as in the code of
  Reddi et al. (2021), for which their rates were tuned; TFF 0.87's baseline takes the mean.
  """

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    for i in range(0, len(weights), 2):
      x = layers.dense(x, weights[i], weights[i + 1])
      # Each layer has two arrays of weights; the layer of the code has no sigmoid.
      if i != 2 * _CODE_LAYER:
        x = tf.sigmoid(x)
    return x

  def mean_squared(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.math.squared_difference(predictions, y), axis=-1)

  def mean_absolute(predictions: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.abs(predictions - y), axis=-1)

  return layers.SummedLossModel(
    initial_weights=layers.perceptron_weights(seed, _AUTOENCODER_WIDTHS),
    forward=forward,
    example_loss=mean_squared,
    metrics=collections.OrderedDict(
      mse=lambda p, y: (mean_squared(p, y), tf.ones_like(p[..., 0])),
      mae=lambda p, y: (mean_absolute(p, y), tf.ones_like(p[..., 0])),
    ),
    x_spec=tf.TensorSpec([None, 784], tf.float32),
    y_spec=tf.TensorSpec([None, 784], tf.float32),
    client_axis=True,
  )
