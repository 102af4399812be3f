"""Reads and writes weights: models that start from a file, and exported models."""

import copy
import errno
import io
import os
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from tff_adaptive._utils import archives, error_text, private_apis, temporary_folders
from tff_adaptive.models import keras_model, model as model_lib

FORMATS = ('keras', 'saved_model', 'npz', 'tflite')
_WEIGHTS = 'model.weights.h5'  # In a .keras file.
_LITE = (tf.lite.OpsSet.TFLITE_BUILTINS,)
_LITE_AND_OTHERS = (*_LITE, tf.lite.OpsSet.SELECT_TF_OPS)


def weight_names(model: model_lib.Model) -> tuple[str, ...]:
  """Returns the trainable weights' names: those of a `KerasModel`, else weight_0, weight_1, ..."""
  count = len(model.initial_weights[0])
  return getattr(model, 'weight_names', tuple(f'weight_{i}' for i in range(count)))


def read_weights_for(path: str, model: model_lib.Model) -> tuple[np.ndarray, ...]:
  """Reads trainable weights for a model from a .keras or .npz file; see `fitted_weights`.

  Raises:
    ValueError: If the file cannot be read or does not fit the model. Also if a .keras file is read
      for a model that is not made by Keras, or if the file's arrays that are not trained, such as
      moving statistics, differ from the model's.
  """
  if not os.path.isfile(path):
    raise ValueError(f'there is no file {path}; give a run, a .keras or an .npz file')
  if not path.endswith(('.npz', '.keras')):
    raise ValueError(f'{path} ends with neither .keras nor .npz; export the model as one of them')
  constants_of_model = getattr(model, 'constants', ())
  try:
    if path.endswith('.npz'):
      arrays = _read_npz(path)
      constants = constants_of_model
    else:
      arrays, constants = _read_keras(path, model)
  except Exception as error:  # On damaged bytes the decoders raise a dozen unrelated classes.
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    raise ValueError(f'{path} cannot be read: {reason}') from None
  weights = fitted_weights(path, arrays, model)
  is_same = len(constants) == len(constants_of_model)
  if not is_same or not all(map(np.array_equal, constants, constants_of_model)):
    raise ValueError(
      f'{path} has arrays that are not trained, such as moving means and variances or frozen '
      f'layers ({len(constants)}; the model has {len(constants_of_model)}), and they differ from '
      'those of the model: let the function that builds the model load the file with '
      'tf.keras.models.load_model, instead of starting from it'
    )
  return weights


def _read_npz(path: str) -> dict[str, np.ndarray]:
  with zipfile.ZipFile(path) as archive:
    names = archive.namelist()
    return {name.removesuffix('.npy'): archives.read_array(archive, name) for name in names}


def _read_keras(
  path: str, model: model_lib.Model
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]:
  """Reads a .keras file's trainable weights by name, in the model's order, and its other arrays.

  Such a file has a description of the model, which names Python objects, and an HDF5 file with the
  weights. Only the weights are read; the code of the task builds the model. The file may be written
  by Keras 2, of TensorFlow 2.14 or later, or by Keras 3.
  """
  if not isinstance(model, keras_model.KerasModel):
    raise ValueError(
      'its weights are for a Keras model, which this task has not: give an .npz file, made by '
      'np.savez(FILE, *keras_model.get_weights())'
    )
  with zipfile.ZipFile(path) as archive, h5py.File(io.BytesIO(archive.read(_WEIGHTS))) as file:
    arrays = _layer_arrays(file)
  keras = model.to_keras(model.initial_weights[0])
  if len(arrays) != len(keras.weights):
    raise ValueError(f'its layers have {len(arrays)} arrays, the model has {len(keras.weights)}')
  # Keras itself knows where in the file of this model an array belongs.
  with temporary_folders.folder('tff-adaptive-weights-') as folder:
    weights_path = os.path.join(folder, _WEIGHTS)
    keras.save_weights(weights_path)
    with h5py.File(weights_path, 'r+') as file:
      _replace_arrays(file, arrays)
    keras.load_weights(weights_path)
  weights, constants = model.values_of(keras)
  return dict(zip(model.weight_names, weights)), constants


def _layer_arrays(file: h5py.File) -> dict[str, Any]:
  """Returns the values of a weights file's layers by their names, which `_plain` has unified.

  The arrays of the optimizer and of metrics, and the state of random generators, are left out.
  """
  arrays: dict[str, Any] = {}

  def visit(name: str, part: h5py.Group | h5py.Dataset) -> None:
    plain = _plain(name)
    folders = plain.split('/')
    if (
      isinstance(part, h5py.Dataset) and folders[0] == 'layers' and 'seed_generator' not in folders
    ):
      arrays[plain] = part[()]

  file.visititems(visit)
  return arrays


def _plain(name: str) -> str:
  """Returns the name that an array of a .keras file has with every version of Keras.

  A layer's arrays are in groups that are called after attributes. In TensorFlow 2.14 the layers of
  a model are in `_layer_checkpoint_dependencies`, in later versions of Keras 2 and in Keras 3 in
  `layers`. Keras 3 leaves out the underscore of private attributes, as in `query_dense`.
  """
  groups = name.replace('_layer_checkpoint_dependencies', 'layers').split('/')
  return '/'.join(group.lstrip('_') for group in groups)


def _replace_arrays(file: h5py.File, arrays: Mapping[str, Any]) -> None:
  """Replaces the arrays in a model's own weights file by those of the same plain names."""
  names: list[str] = []

  def visit(name: str, part: h5py.Group | h5py.Dataset) -> None:
    if isinstance(part, h5py.Dataset):
      names.append(name)

  file.visititems(visit)  # First all names, because the file changes below.
  for name in names:
    if _plain(name) not in arrays:
      raise ValueError(
        f'it has no array {_plain(name)}, as the model has: load it with its Keras and save its '
        'weights by np.savez(FILE, *map(np.array, keras_model.trainable_variables))'
      )
    del file[name]
    file[name] = arrays[_plain(name)]


def fitted_weights(
  where: str, found: Mapping[Any, np.ndarray], model: model_lib.Model
) -> tuple[np.ndarray, ...]:
  """Returns weights in a model's order and dtypes, matched by name if weights and model have names.

  Args:
    where: The file or object that has the weights, for error messages.
    found: Arrays by name or number. Without names they must be in the model's order.
    model: The model.

  Raises:
    ValueError: If names or shapes differ, or a value is not a finite floating-point number.
  """
  # Names like weight_0 only number the weights, so these go by their order.
  wanted = weight_names(model)
  of_model = model.initial_weights[0]
  if all(isinstance(name, str) and not name.startswith('weight_') for name in (*found, *wanted)):
    missing = [name for name in wanted if name not in found]
    if missing or len(found) != len(wanted):
      extra = [name for name in found if name not in wanted]
      raise ValueError(
        f'{where} has other weights than the model: {len(missing)} are missing ({missing!s:.200}), '
        f'{len(extra)} unknown ({extra!s:.200})'
      )
    arrays = [found[name] for name in wanted]
  else:
    arrays = list(found.values())
  if len(arrays) != len(of_model):
    raise ValueError(f'{where} has {len(arrays)} weights, the model has {len(of_model)}')
  for name, array, like in zip(wanted, arrays, of_model):
    if array.shape != np.shape(like):
      raise ValueError(
        f'{where}: {name} has shape {list(array.shape)}, in the model it has {list(np.shape(like))}'
      )
    if array.dtype.kind != 'f':
      raise ValueError(
        f'{where}: {name} has dtype {array.dtype}; weights are floating-point numbers'
      )
  with np.errstate(over='ignore'):  # An overflow gives inf, which is refused below.
    arrays = [a.astype(np.asarray(like).dtype) for a, like in zip(arrays, of_model)]
  for name, array in zip(wanted, arrays):
    if not np.isfinite(array).all():
      raise ValueError(f'{where}: {name} has values that are not finite numbers of {array.dtype}')
  return tuple(arrays)


def with_initial_weights(model: model_lib.Model, weights: Sequence[Any]) -> model_lib.Model:
  """Returns a copy of the model that starts from other weights, for a warm start or fine-tuning.

  Args:
    model: The model.
    weights: Arrays with the shapes of `model.initial_weights[0]`; see
      `training.initial_weights_from`.

  Raises:
    ValueError: If the weights have other shapes, are no floating-point numbers or not finite.
  """
  arrays = dict(enumerate(np.asarray(w) for w in weights))
  changed = copy.copy(model)
  fitted = fitted_weights('the given weights', arrays, model)
  private_apis.replace_initial_weights(changed, (fitted, ()))
  return changed


def save(model: Any, weights: Sequence[Any], path: str, file_format: str) -> str:
  """Writes a trained model and returns the path; after a failure no file is left.

  Args:
    model: The model, a `Model` or a `StoredModel`.
    weights: The model's trainable weights.
    path: Path of the file or folder without its extension. Nothing may exist there yet.
    file_format: 'keras' writes what `tf.keras.models.load_model` loads: PATH.keras for a model with
      a method `to_keras`, such as one of `from_keras`, else the folder PATH. 'saved_model' writes
      the folder PATH with a signature `serving_default(x) -> predictions`. 'npz' writes PATH.npz,
      weights by name. 'tflite' writes PATH.tflite, with an input `x` for a batch of any size. If
      TensorFlow Lite lacks an operation, as for an LSTM, the file needs TensorFlow's.

  Raises:
    ValueError: If the format is unknown, the weights do not fit, the path exists, or TensorFlow
      Lite has no operations for the model.
    OSError: If the model cannot be written, for example because the disk is full.
  """
  if file_format not in FORMATS:
    raise ValueError(f'the format is {file_format!r}; it must be one of {", ".join(FORMATS)}')
  arrays = fitted_weights('the model to save', dict(enumerate(map(np.asarray, weights))), model)
  write: Callable[[Any, Sequence[np.ndarray], str], None] = _write_wrapped
  if file_format == 'npz':
    path = f'{path}.npz'
    write = _write_npz
  elif file_format == 'tflite':
    path = f'{path}.tflite'
    write = _write_lite
  elif file_format == 'keras' and getattr(model, 'has_keras', hasattr(model, 'to_keras')):
    path = f'{path}.keras'
    write = _write_keras
  if os.path.lexists(path):
    raise ValueError(f'{path} exists already: name another place')
  folder = os.path.dirname(os.path.abspath(path))
  try:
    with temporary_folders.folder('.exported.', folder) as temporary:
      written = os.path.join(temporary, os.path.basename(path))
      write(model, arrays, written)
      shutil.move(written, path)  # Within one file system: a renaming.
  except (OSError, tf.errors.OpError) as error:  # SavedModels raise TensorFlow's errors.
    number = getattr(error, 'errno', None) or errno.EIO
    if isinstance(error, tf.errors.ResourceExhaustedError):
      number = errno.ENOSPC
    raise OSError(number, f'the model cannot be written: {os.strerror(number)}', path) from error
  return path


class _Forward(tf.keras.layers.Layer):
  """A Keras layer that has a model's weights and computes its predictions without dropout."""

  def __init__(self, model: model_lib.Model, weights: Sequence[np.ndarray]):
    super().__init__(name='predictions', autocast=False)
    self._model_forward = model.forward
    self._parts = [
      self.add_weight(name, value.shape, value.dtype, tf.keras.initializers.Constant(value))
      for name, value in zip(weight_names(model), weights)
    ]

  def call(self, x: tf.Tensor) -> tf.Tensor:
    """Returns the predictions for a batch."""
    weights = tuple(tf.convert_to_tensor(part) for part in self._parts)
    return self._model_forward(weights, x, False, None)


def _write_keras(model: Any, weights: Sequence[np.ndarray], path: str) -> None:
  model.to_keras(weights).save(path)


def _write_lite(model: Any, weights: Sequence[np.ndarray], path: str) -> None:
  """Writes a TensorFlow Lite file, with TensorFlow's own operations only if it needs them."""
  served = f'{path}.saved_model'  # In the temporary folder of `save`.
  _write_wrapped(model, weights, served)
  reason = ''
  for operations in (_LITE, _LITE_AND_OTHERS):
    try:
      content = _converted(served, operations)
    except Exception as error:  # The converter's errors are of many classes.
      reason = error_text.in_brief(error)
      continue
    with open(path, 'wb') as file:
      file.write(content)
    return
  raise ValueError(f'TensorFlow Lite cannot express the model: {reason}')


def _converted(served: str, operations: Sequence[Any]) -> bytes:
  """Returns a SavedModel as a TensorFlow Lite file, with its signature."""
  converter = tf.lite.TFLiteConverter.from_saved_model(served)
  converter.target_spec.supported_ops = operations
  content: bytes = converter.convert()
  return content


def _write_npz(model: Any, weights: Sequence[np.ndarray], path: str) -> None:
  arrays: dict[str, Any] = dict(zip(weight_names(model), weights))
  np.savez(path, **arrays)


def _write_wrapped(model: model_lib.Model, weights: Sequence[np.ndarray], path: str) -> None:
  x = model.input_spec['x']
  inputs = tf.keras.Input(x.shape[1:], dtype=x.dtype, name='x')
  tf.keras.Model(inputs, _Forward(model, weights)(inputs)).save(path, save_format='tf')
