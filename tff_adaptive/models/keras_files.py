"""Weights of .keras files that may be damaged or hostile.

Such a file describes a model by names of Python objects, and has its weights in an HDF5 file. Only
the weights are read, into a model that the program builds: nothing that the file names is imported.
"""

import io
import math
import zipfile
from typing import Any

import h5py
import numpy as np

from tff_adaptive.models import keras_model, model as model_lib

_WEIGHTS, _LAYERS = 'model.weights.h5', '_layer_checkpoint_dependencies'


def read(
  path: str, model: model_lib.Model, most_bytes: int
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...]]:
  """Reads the weights of a .keras file for a model; more than `most_bytes` are refused unread.

  Returns:
    Name -> array of the trainable ones, in the model's order; and the arrays of the others, such as
    moving statistics and frozen layers.

  Raises:
    ValueError: If the model is not made by Keras, or the file is of another or refers to others.
    Exception: Of whatever kind zipfile, h5py and Keras raise on damaged bytes.
  """
  if not isinstance(model, keras_model.KerasModel):
    raise ValueError(
      'its weights are for a Keras model, which this task has not: give an .npz file, made by '
      'np.savez(FILE, *keras_model.get_weights())'
    )
  with zipfile.ZipFile(path) as archive:
    size = archive.getinfo(_WEIGHTS).file_size
    if size > 2 * most_bytes:
      raise ValueError(f'its {_WEIGHTS} takes {size:,} bytes; it may take {2 * most_bytes:,}')
    with h5py.File(io.BytesIO(archive.read(_WEIGHTS)), 'r') as file:
      count = _num_arrays(file, most_bytes)
  made = model.to_keras(model.initial_weights[0])
  if count != len(made.weights):
    raise ValueError(f'its layers have {count} arrays, the model has {len(made.weights)}')
  made.load_weights(path)
  trained = [v.numpy() for v in made.trainable_variables]
  constants = tuple(v.numpy() for v in made.non_trainable_variables)
  return dict(zip(model.weight_names, trained)), constants


def _num_arrays(file: h5py.File, most_bytes: int) -> int:
  """How many arrays the layers have; ValueError if some are elsewhere, or larger together."""
  links: list[tuple[str, Any]] = []
  file.visititems_links(lambda *link: links.append(link))
  elsewhere = [name for name, to in links if not isinstance(to, h5py.HardLink)]
  found: list[h5py.Group | h5py.Dataset] = []
  file[_LAYERS].visititems(lambda _, part: found.append(part))
  arrays = [part for part in found if isinstance(part, h5py.Dataset)]
  elsewhere += [array.name for array in arrays if array.external or array.is_virtual]
  if elsewhere:
    raise ValueError(f'its {_WEIGHTS} refers to another file or place at {elsewhere[0]!r:.80}')
  total = sum(math.prod(array.shape or ()) * array.dtype.itemsize for array in arrays)
  if total > most_bytes:
    raise ValueError(f'its arrays take {total:,} bytes; they may take {most_bytes:,}')
  return len(arrays)
