"""Trained weights in files, and models that start from them."""

import copy
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive.models import keras_model
from tff_adaptive.models import model as model_lib


def weight_names(model: model_lib.Model) -> tuple[str, ...]:
  """The trainable weights' names: those of a Keras model, else weight_0, weight_1, ..."""
  count = len(model.initial_weights[0])
  return getattr(model, 'weight_names', tuple(f'weight_{i}' for i in range(count)))


def read_weights(path: str) -> dict[str, np.ndarray]:
  """Reads the trainable weights of a file.

  Args:
    path: A .keras or .npz file.

  Returns:
    Name -> array, in the file's order.

  Raises:
    ValueError: If the file is of another kind or cannot be read.
  """
  if not os.path.isfile(path):
    raise ValueError(f'there is no file {path}; give a run, a .keras or an .npz file')
  try:
    if path.endswith('.npz'):
      with np.load(path, allow_pickle=False) as file:
        return dict(file)
    if path.endswith('.keras'):
      # Keras takes another file for one of its older formats, which may run code of the file.
      if not zipfile.is_zipfile(path):
        raise ValueError('it is no .keras archive')
      found = tf.keras.models.load_model(path, compile=False, safe_mode=True)
      variables = found.trainable_variables
      return dict(zip(keras_model.canonical_names(found), [v.numpy() for v in variables]))
  except Exception as error:  # On damaged bytes the decoders raise a dozen unrelated classes.
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    raise ValueError(f'{path} cannot be read: {reason}') from None
  raise ValueError(f'{path} ends with neither .keras nor .npz; export the model as one of them')


def fitted_weights(
  where: str, found: Mapping[Any, np.ndarray], model: model_lib.Model
) -> tuple[np.ndarray, ...]:
  """Weights in a model's order and dtypes.

  Args:
    where: Where they are from, for the message.
    found: Name or number -> array.
    model: The model.

  Returns:
    The weights; by name where both have names, else by order.

  Raises:
    ValueError: If names or shapes differ, or a value is not finite.
  """
  wanted, own = weight_names(model), model.initial_weights[0]
  if all(isinstance(name, str) and not name.startswith('weight_') for name in (*found, *wanted)):
    missing = [name for name in wanted if name not in found]
    if missing or len(found) != len(wanted):
      extra = [name for name in found if name not in wanted]
      raise ValueError(
        f'{where} has other weights than the model: missing {", ".join(missing) or "none"}; '
        f'unknown {", ".join(extra) or "none"}'
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
    if array.dtype.kind != 'f' or not np.isfinite(array).all():
      raise ValueError(f'{where}: {name} has values that are not finite numbers')
  return tuple(a.astype(np.asarray(like).dtype) for a, like in zip(arrays, own))


def with_initial_weights(model: model_lib.Model, weights: Sequence[Any]) -> model_lib.Model:
  """The model with other initial weights: a warm start, or fine-tuning.

  Args:
    model: The model.
    weights: Arrays like `model.initial_weights[0]`; see `training.initial_weights_from`.

  Returns:
    A copy of the model.

  Raises:
    ValueError: If the weights have other shapes or are not finite.
  """
  arrays = dict(enumerate(np.asarray(w) for w in weights))
  changed = copy.copy(model)
  # TFF's FunctionalModel has a property for reading it only.
  changed._initial_weights = (fitted_weights('the given weights', arrays, model), ())
  return changed
