"""A trained model for others: a Keras model, a TensorFlow SavedModel, or arrays."""

import errno
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive.models import keras_model, model as model_lib, weights as weights_lib

FORMATS = ('keras', 'saved_model', 'npz')


def save(model: model_lib.Model, weights: Sequence[Any], path: str, file_format: str) -> str:
  """Writes a trained model, whole or not at all.

  Args:
    model: The model.
    weights: Its trainable weights.
    path: Where to, without an ending; what is there must not exist yet.
    file_format: 'keras': what `tf.keras.models.load_model` loads, PATH.keras of a model made by
      `from_keras`, else the folder PATH; 'saved_model': the folder PATH with a signature
      `serving_default(x) -> predictions`; 'npz': PATH.npz, weights by name.

  Returns:
    The path written.

  Raises:
    ValueError: If the format is unknown, the weights do not fit or there is something at the path.
    OSError: If it cannot be written, because the disk is full, say; nothing is left then.
  """
  if file_format not in FORMATS:
    raise ValueError(f'the format is {file_format!r}; it must be one of {", ".join(FORMATS)}')
  arrays = weights_lib.fitted_weights(
    'the model to save', dict(enumerate(map(np.asarray, weights))), model
  )
  is_keras = isinstance(model, keras_model.KerasModel)
  if file_format == 'npz':
    path, write = f'{path}.npz', _write_npz
  elif file_format == 'saved_model':
    write = _write_module
  else:
    path, write = f'{path}.keras' if is_keras else path, _write_keras
  if os.path.lexists(path):
    raise ValueError(f'{path} exists already: name another place')
  folder = os.path.dirname(os.path.abspath(path))
  try:
    with tempfile.TemporaryDirectory(prefix='.exported.', dir=folder) as temporary:
      made = os.path.join(temporary, os.path.basename(path))
      write(model, arrays, made)
      shutil.move(made, path)  # Within one file system: a renaming.
  except (OSError, tf.errors.OpError) as error:  # TensorFlow has its own for SavedModels.
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    number = errno.ENOSPC if is_full else getattr(error, 'errno', None) or errno.EIO
    raise OSError(number, f'the model cannot be written: {os.strerror(number)}', path) from error
  return path


def wrapped(model: model_lib.Model, weights: Sequence[np.ndarray]) -> tf.keras.Model:
  """A Keras model around `Model.forward`, without dropout; its input is a batch of x."""
  x = model.input_spec['x']
  inputs = tf.keras.Input(x.shape[1:], dtype=x.dtype, name='x')
  return tf.keras.Model(inputs, _Forward(model, weights)(inputs))


class _Forward(tf.keras.layers.Layer):
  """`Model.forward` with weights of its own."""

  def __init__(self, model: model_lib.Model, weights: Sequence[np.ndarray]):
    super().__init__(name='forward', autocast=False)
    self._model_forward = model.forward
    self._parts = [
      self.add_weight(name, value.shape, value.dtype, tf.keras.initializers.Constant(value))
      for name, value in zip(weights_lib.weight_names(model), weights)
    ]

  def call(self, x: tf.Tensor) -> tf.Tensor:
    """Predictions of a batch."""
    weights = tuple(tf.convert_to_tensor(part) for part in self._parts)
    return self._model_forward(weights, x, False, None)


def _write_npz(model: model_lib.Model, weights: Sequence[np.ndarray], path: str) -> None:
  with zipfile.ZipFile(path, 'w') as archive:  # As np.savez, which leaves it open on an error.
    for name, array in zip(weights_lib.weight_names(model), weights):
      with archive.open(f'{name}.npy', 'w', force_zip64=True) as file:
        np.lib.format.write_array(file, array, allow_pickle=False)


def _write_keras(model: Any, weights: Sequence[np.ndarray], path: str) -> None:
  if isinstance(model, keras_model.KerasModel):
    model.to_keras(weights).save(path)
  else:
    wrapped(model, weights).save(path, save_format='tf')


def _write_module(model: model_lib.Model, weights: Sequence[np.ndarray], path: str) -> None:
  module = tf.Module()
  module.parts = [
    tf.Variable(value, name=name) for name, value in zip(weights_lib.weight_names(model), weights)
  ]

  @tf.function(input_signature=[model.input_spec['x']], autograph=False)
  def serve(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {'predictions': model.forward(tuple(map(tf.identity, module.parts)), x, False, None)}

  module.serve = serve
  tf.saved_model.save(module, path, signatures={'serving_default': serve})
