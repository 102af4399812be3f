"""Trained weights in files, and models that start from them."""

import copy
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import archives, memory, private_apis
from tff_adaptive.models import keras_files, model as model_lib


def weight_names(model: model_lib.Model) -> tuple[str, ...]:
  """The trainable weights' names: those of a Keras model, else weight_0, weight_1, ..."""
  count = len(model.initial_weights[0])
  return getattr(model, 'weight_names', tuple(f'weight_{i}' for i in range(count)))


def read_weights(path: str, most_bytes: int | None = None) -> dict[str, np.ndarray]:
  """Reads the trainable weights of a file.

  Args:
    path: A .keras or .npz file.
    most_bytes: That the weights may take, by default what memory is available; a file that
      declares more is refused before anything is allocated.

  Returns:
    Name -> array, in the file's order.

  Raises:
    ValueError: If the file is of another kind, too large, or cannot be read.
  """
  return _read(path, memory.available_memory() if most_bytes is None else most_bytes)[0]


def read_weights_for(path: str, model: model_lib.Model) -> tuple[np.ndarray, ...]:
  """Reads the trainable weights of a .keras or .npz file for a model; see `fitted_weights`.

  Raises:
    ValueError: If the file cannot be read or does not fit, or a .keras file has other arrays that
      are not trained, such as moving statistics, than the model: these would be lost.
  """
  found, constants = _read(path, bytes_for(model))
  weights = fitted_weights(path, found, model)
  own = getattr(model, 'constants', ())
  if constants is not None and not (
    len(constants) == len(own) and all(map(np.array_equal, constants, own))
  ):
    raise ValueError(
      f'{path} has arrays that are not trained, such as moving means and variances or frozen '
      f'layers ({len(constants)}; the model has {len(own)}), and the model has others, which only '
      'its trained weights would not fit: let the function that builds the model load the file, '
      'tf.keras.models.load_model, instead of starting from it'
    )
  return weights


def _read(
  path: str, most_bytes: int
) -> tuple[dict[str, np.ndarray], tuple[np.ndarray, ...] | None]:
  """The trainable weights of a file; and the others of a .keras file."""
  if not os.path.isfile(path):
    raise ValueError(f'there is no file {path}; give a run, a .keras or an .npz file')
  try:
    if path.endswith('.npz'):
      return _read_npz(path, most_bytes), None
    if path.endswith('.keras'):
      return keras_files.read(path, most_bytes)
  except Exception as error:  # On damaged bytes the decoders raise a dozen unrelated classes.
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    raise ValueError(f'{path} cannot be read: {reason}') from None
  raise ValueError(f'{path} ends with neither .keras nor .npz; export the model as one of them')


def bytes_for(model: model_lib.Model) -> int:
  """What a file of weights for a model may take: as float64 and twice as many, or 64 MB.

  A file of a somewhat larger model is read, so that what differs can be named.
  """
  arrays = (*model.initial_weights[0], *getattr(model, 'constants', ()))
  return max(1 << 26, 16 * sum(map(np.size, arrays)))


def _read_npz(path: str, most_bytes: int) -> dict[str, np.ndarray]:
  with zipfile.ZipFile(path) as archive:
    entries = archives.entries(archive, path)
    total = sum(entry.file_size for entry in entries.values())
    if total > most_bytes:
      raise ValueError(f'it declares {total:,} bytes; the weights may take {most_bytes:,}')
    for entry in entries.values():
      archives.check_array(archive, entry)
    return {
      name.removesuffix('.npy'): archives.read_array(archive, entry)
      for name, entry in entries.items()
    }


def fitted_weights(
  where: str, found: Mapping[Any, np.ndarray], model: model_lib.Model
) -> tuple[np.ndarray, ...]:
  """Weights in a model's order and dtypes: by name where both have names, else by order.

  Args:
    where: Where they are from, for the message.
    found: Name or number -> array.
    model: The model.

  Raises:
    ValueError: If names or shapes differ, or a value is not finite.
  """
  wanted, own = weight_names(model), model.initial_weights[0]
  if all(isinstance(name, str) and not name.startswith('weight_') for name in (*found, *wanted)):
    missing = [name for name in wanted if name not in found]
    if missing or len(found) != len(wanted):
      extra = [name for name in found if name not in wanted]
      raise ValueError(
        f'{where} has other weights than the model: missing {_listed(missing)}; '
        f'unknown {_listed(extra)}'
      )
    arrays = [found[name] for name in wanted]
  else:
    arrays = list(found.values())
  if len(arrays) != len(own):
    raise ValueError(f'{where} has {len(arrays)} weights, the model has {len(own)}')
  for name, array, like in zip(wanted, arrays, own):
    if array.shape != np.shape(like):
      raise ValueError(
        f'{where}: {name} has shape {list(array.shape)}, in the model it has {list(np.shape(like))}'
      )
    if array.dtype.kind != 'f':
      raise ValueError(
        f'{where}: {name} has dtype {array.dtype}; weights are floating-point numbers'
      )
  with np.errstate(over='ignore'):  # What overflows is not finite.
    arrays = [a.astype(np.asarray(like).dtype) for a, like in zip(arrays, own)]
  for name, array in zip(wanted, arrays):
    if not np.isfinite(array).all():
      raise ValueError(f'{where}: {name} has values that are not finite numbers of {array.dtype}')
  return tuple(arrays)


def _listed(names: Sequence[str]) -> str:
  """Some names in a line: 'a, b', or the first five and how many there are."""
  shown = ', '.join(name[:80] for name in names[:5]) or 'none'
  return shown if len(names) <= 5 else f'{shown}, ... ({len(names)} in all)'


def with_initial_weights(model: model_lib.Model, weights: Sequence[Any]) -> model_lib.Model:
  """A copy of the model with other initial weights: a warm start, or fine-tuning.

  Args:
    model: The model.
    weights: Arrays like `model.initial_weights[0]`; see `training.initial_weights_from`.

  Raises:
    ValueError: If the weights have other shapes or are not finite.
  """
  arrays = dict(enumerate(np.asarray(w) for w in weights))
  changed = copy.copy(model)
  fitted = fitted_weights('the given weights', arrays, model)
  private_apis.replace_initial_weights(changed, (fitted, ()))
  return changed
