"""Weights of .keras files that may be damaged or hostile.

Such a file describes a model by names of Python objects and sizes of layers, and has its weights in
an HDF5 file, which can refer to other files. What it names, refers to and declares is looked at
before Keras loads it: nothing but Keras's own layers is imported, no other file is read, and
nothing large is allocated.
"""

import io
import json
import math
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import h5py
import numpy as np
import tensorflow as tf

from tff_adaptive._utils import user_code
from tff_adaptive.models import keras_model

_CONFIG, _WEIGHTS, _METADATA = 'config.json', 'model.weights.h5', 'metadata.json'
_MOST_CONFIG_BYTES = 1 << 25
_ROOMS = (
  *('activations', 'constraints', 'engine', 'initializers', 'layers', 'losses', 'metrics'),
  *('mixed_precision', 'models', 'optimizers', 'regularizers'),
)


def read(path: str, most_bytes: int) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]:
  """Reads the weights of a .keras file; of more than `most_bytes` are refused unread.

  Returns:
    Name -> array of the trainable ones, in the model's order; and the arrays of the others, such as
    moving statistics and frozen layers.

  Raises:
    ValueError: If it is no such file, or has or names what it must not.
    Exception: Of whatever kind zipfile, h5py and Keras raise on damaged bytes.
  """
  # Keras takes another file for one of its older formats, which may run code of the file.
  if not zipfile.is_zipfile(path):
    raise ValueError('it is no .keras archive')
  with zipfile.ZipFile(path) as archive:
    for entry in archive.infolist():
      name = entry.filename
      if name not in (_CONFIG, _WEIGHTS, _METADATA):
        raise ValueError(f'it holds {name!r:.80}, which is no part of a model without assets')
      most = 2 * most_bytes if name == _WEIGHTS else _MOST_CONFIG_BYTES
      if entry.file_size > most:
        raise ValueError(f'its {name} takes {entry.file_size:,} bytes; it may take {most:,}')
    config = json.loads(archive.read(_CONFIG))
    with h5py.File(io.BytesIO(archive.read(_WEIGHTS)), 'r') as file:
      _check_sum('arrays', _sizes(file), most_bytes)
  for part in _objects(config):
    _check_object(part)
  with tf.Graph().as_default():  # Where no weight is allocated.
    described = tf.keras.saving.deserialize_keras_object(config, safe_mode=True)
    if not isinstance(described, tf.keras.Model):
      raise ValueError(f'it holds a {type(described).__name__}, no model')
    sizes = (math.prod(w.shape) * w.dtype.size for w in described.weights)
    _check_sum('layers', sizes, most_bytes)
  found = tf.keras.models.load_model(path, compile=False, safe_mode=True)
  trained = [v.numpy() for v in found.trainable_variables]
  constants = tuple(v.numpy() for v in found.non_trainable_variables)
  return dict(zip(keras_model.canonical_names(found), trained)), constants


def _sizes(file: h5py.File) -> list[int]:
  """Bytes of a file's arrays; ValueError if something is elsewhere than in the file."""
  links: list[tuple[str, Any]] = []
  file.visititems_links(lambda *link: links.append(link))
  elsewhere = next((name for name, to in links if not isinstance(to, h5py.HardLink)), None)
  if elsewhere is not None:
    raise ValueError(f'its {_WEIGHTS} refers to another place at {elsewhere!r:.80}')
  found: list[h5py.Group | h5py.Dataset] = []
  file.visititems(lambda _, part: found.append(part))
  arrays = [part for part in found if isinstance(part, h5py.Dataset)]
  for array in arrays:
    if array.external or array.is_virtual:
      raise ValueError(f'its {_WEIGHTS} has {array.name!r:.80} in another file')
    if array.dtype.kind not in 'biuf':
      raise ValueError(f'its {array.name!r:.80} has dtype {array.dtype}')
  return [math.prod(array.shape or ()) * array.dtype.itemsize for array in arrays]


def _check_sum(what: str, sizes: Iterable[int], most_bytes: int) -> None:
  total = sum(sizes)
  if total > most_bytes:
    raise ValueError(f'its {what} take {total:,} bytes; they may take {most_bytes:,}')


def _objects(value: Any) -> Iterator[dict[str, Any]]:
  """The descriptions of objects in a config, at whatever depth."""
  if isinstance(value, dict):
    yield value
    value = list(value.values())
  if isinstance(value, list):
    for part in value:
      yield from _objects(part)


def _check_object(described: dict[str, Any]) -> None:
  """ValueError if a description makes Keras import something, or layers read a file."""
  module, name = described.get('module'), described.get('registered_name')
  start = "give the run's folder or an .npz file"
  if described.get('class_name') == 'Lambda':
    raise ValueError(f'it has a Lambda layer, whose code is not taken from a file: {start}')
  if isinstance(described.get('vocabulary'), str):
    raise ValueError(f'a layer of it reads the file {described["vocabulary"]!r:.80}')
  if module is None or name in tf.keras.saving.get_custom_objects():
    return
  library, *rooms = (part for part in str(module).split('.') if part != 'src')
  is_of_keras = library == 'keras' and (not rooms or rooms[0] in _ROOMS)
  if library.startswith(user_code.MODULE_PREFIX):
    raise ValueError(
      f'it names {str(described.get("class_name"))!r:.80} of the file of your own that made it, '
      f'which is not taken from there: {start}'
    )
  if not is_of_keras and module != 'builtins':
    raise ValueError(
      f"it names {str(module)!r:.80}, which is none of Keras's layers: register a layer of your "
      'own by tf.keras.saving.register_keras_serializable'
    )
