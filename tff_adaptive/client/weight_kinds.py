"""The names of a model's weights, and the kinds of layers that they belong to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive import models
from tff_adaptive.corrections.base import NamedWeight

# What Keras calls scale and offset of all normalisation layers, and moving statistics.
_STATISTICS = ('moving_mean', 'moving_variance')
_NORM = ('gamma', 'beta', *_STATISTICS)
_EMBEDDING = ('embeddings',)


def of_model(model: models.Model) -> tuple[NamedWeight, ...]:
  """Returns the weights of a `models.Model`: by name where Keras made it, else by form."""
  weights = model.initial_weights[0]
  names = getattr(model, 'weight_names', None)
  if names is not None:
    return of_names(names, [np.shape(w) for w in weights])
  return of_arrays(weights, reads_tokens=model.input_spec['x'].dtype.is_integer)


def of_names(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> tuple[NamedWeight, ...]:
  """Returns the weights of a Keras model from names such as 'dense/kernel'.

  The last layer is the one of the last weight; moving statistics stand behind all others.
  """
  pairs = [_split(name) for name in names]
  last_layer = [layer for layer, own_name in pairs if own_name not in _STATISTICS][-1]
  weights = []
  for name, shape in zip(names, shapes):
    layer, own_name = _split(name)
    kinds = _part_of_model(layer == last_layer)
    if own_name in _NORM:
      kinds.add('norm')
    if own_name in _EMBEDDING:
      kinds.add('embedding')
    weights.append(NamedWeight(name, tuple(shape), frozenset(kinds)))
  return tuple(weights)


def of_arrays(weights: Sequence[Any], reads_tokens: bool = False) -> tuple[NamedWeight, ...]:
  """Returns the weights of a model without names, which are called weight_0, weight_1, ...

  The last layer is the last kernel (a weight of two axes or more) and what follows it. A vector of
  ones followed by one of zeros of the same size is a normalisation. The first weight is an
  embedding if the model reads tokens.

  Args:
    weights: The initial weights.
    reads_tokens: Whether the model's inputs are integers.
  """
  arrays = [np.asarray(w) for w in weights]
  kernels = [i for i, array in enumerate(arrays) if array.ndim > 1]
  # A model of vectors alone, such as that of least squares, is all head.
  first_of_head = kernels[-1] if kernels else 0
  norms: set[int] = set()
  for i, (scale, offset) in enumerate(itertools.pairwise(arrays)):
    is_pair = scale.ndim == 1 and scale.shape == offset.shape
    if is_pair and (scale == 1).all() and (offset == 0).all():
      norms.update((i, i + 1))
  named = []
  for i, array in enumerate(arrays):
    kinds = _part_of_model(i >= first_of_head)
    if i in norms:
      kinds.add('norm')
    if i == 0 and reads_tokens:
      kinds.add('embedding')
    named.append(NamedWeight(f'weight_{i}', array.shape, frozenset(kinds)))
  return tuple(named)


def _split(name: str) -> tuple[str, str]:
  """Returns a weight's layer, and its name there without a number that tells equal names apart."""
  layer, _, own_name = name.rpartition('/')
  return layer, re.sub(r'_\d+$', '', own_name)


def _part_of_model(is_last: bool) -> set[str]:
  if is_last:
    return {'head'}
  return {'body'}
