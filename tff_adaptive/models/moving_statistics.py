"""The moving mean and variance of Keras's BatchNormalization, as weights that move in training."""

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import private_apis


def layers_of(keras: tf.keras.Model) -> list[tf.keras.layers.Layer]:
  """Returns the BatchNormalization layers that train, in order."""
  kind = tf.keras.layers.BatchNormalization
  return [layer for layer in keras.submodules if isinstance(layer, kind) and layer.trainable]


def variables_of(keras: tf.keras.Model) -> list[tf.Variable]:
  """Returns the moving means and variances of the layers that train, in order."""
  variables: list[tf.Variable] = []
  for layer in layers_of(keras):
    variables += [layer.moving_mean, layer.moving_variance]
  return variables


def split(keras: tf.keras.Model, count: int) -> tuple[list[tf.Variable], list[tf.Variable]]:
  """Returns the variables for the `count` weights of a `Model` of a Keras model, and the others.

  The weights are the trainable variables; if there are more of them, then the statistics, too.
  """
  weights = list(keras.trainable_variables)
  if count > len(weights):
    weights += variables_of(keras)
  # By identity: TensorFlow's variables compare by their values.
  numbers = {id(variable) for variable in weights}
  return weights, [v for v in keras.non_trainable_variables if id(v) not in numbers]


def freeze(keras: tf.keras.Model) -> None:
  """Makes BatchNormalization use its moving statistics in training too; warns if it trains."""
  kind = tf.keras.layers.BatchNormalization
  for layer in keras.submodules:
    if isinstance(layer, kind):
      private_apis.keep_moving_statistics(layer)
  if layers_of(keras):
    # The text names no layer, so that Python shows it once for all models of a task.
    warnings.warn(
      'BatchNormalization: its moving mean and variance stay where they start, as clients share '
      'no batch statistics; only its scale and offset are trained. Take GroupNormalization or '
      'LayerNormalization instead; for a pretrained network set trainable=False on it; with '
      'moving_statistics=True they move and stay at the clients (FedBN).',
      stacklevel=4,
    )


class Recorder:
  """Gets the statistics that a forward pass would assign to the variables of Keras layers.

  Attributes:
    variables: The moving means and variances of the layers that train, in order.
  """

  def __init__(self, keras: tf.keras.Model):
    """Redirects the layers' assignments to this object.

    Raises:
      ValueError: If no layer trains, or one has statistics of other kinds.
    """
    self.variables = variables_of(keras)
    if not self.variables:
      raise ValueError(
        f'the Keras model {keras.name!r} has no BatchNormalization that trains: leave'
        ' moving_statistics out.'
      )
    for layer in layers_of(keras):
      if layer.renorm or layer.synchronized or layer.virtual_batch_size is not None:
        raise ValueError(
          f'the layer {layer.name!r} has renorm, synchronized or virtual_batch_size, which cannot'
          ' be combined with moving_statistics: leave them out.'
        )
      private_apis.redirect_moving_statistics(layer, self._assign, self._average)
    self._before: Sequence[tf.Tensor] = ()
    self._after: list[tf.Tensor] = []

  def restart(self, statistics: Sequence[tf.Tensor]) -> None:
    """Begins a forward pass, in which these tensors stand for the variables."""
    self._before = statistics
    self._after = list(statistics)

  def result(self) -> tuple[tf.Tensor, ...]:
    """Returns the statistics after the forward pass; in inference they are those before it."""
    return tuple(self._after)

  def _average(self, statistic: Any, value: Any, momentum: Any, batch_size: Any) -> None:
    del batch_size  # Batches of clients have examples.
    self._assign(statistic, statistic - (statistic - value) * (1 - momentum))

  def _assign(self, statistic: Any, value: tf.Tensor) -> None:
    # By identity: tensors compare by their values.
    position = next(i for i, before in enumerate(self._before) if before is statistic)
    if self._after[position] is not statistic:
      raise ValueError(
        'the model calls a BatchNormalization layer twice, whose moving statistics would lose the'
        ' first call: give each call a layer of its own, or leave moving_statistics out.'
      )
    self._after[position] = tf.cast(value, statistic.dtype)
