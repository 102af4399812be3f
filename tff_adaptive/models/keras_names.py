"""Names of the weights of Keras models that do not depend on what was built before."""

import re
from collections.abc import Collection, Sequence

import tensorflow as tf


def canonical(model: tf.keras.Model, variables: Sequence[tf.Variable]) -> tuple[str, ...]:
  """Returns the names of variables of the model without Keras's layer counters."""
  automatic = set()
  for module in (model, *model.submodules):
    # Bidirectional puts the direction before the names of its layers.
    plain = re.sub(r'^(forward|backward)_|_\d+$', '', module.name)
    # Keras derives such a name from the class; a name that a user chose stays, with its number.
    if plain.replace('_', '') == type(module).__name__.lower():
      automatic.add(module.name)
  canonical: dict[str, str] = {}  # Layer's name -> canonical name, in the order of variables.
  names: list[str] = []
  for variable in variables:
    layer, _, weight = variable.name.partition(':')[0].rpartition('/')
    if not layer:
      layer = _owner(variable, model)
    if layer not in canonical:
      parts = []
      for part in layer.split('/'):
        if part in automatic:
          part = re.sub(r'_\d+$', '', part)
        parts.append(part)
      canonical[layer] = _unlike('/'.join(parts), canonical.values())
    names.append(_unlike(f'{canonical[layer]}/{weight}', names))
  return tuple(names)


def _owner(variable: tf.Variable, model: tf.keras.Model) -> str:
  """Returns the name of a variable's layer, which Keras does not note if `__init__` makes it."""
  layers = [m for m in model.submodules if isinstance(m, tf.keras.layers.Layer)]
  owners = [
    layer for layer in layers if any(variable is weight for weight in layer.trainable_weights)
  ]
  # Layers that contain the owner have its weights, too, and are listed before it.
  return min(reversed(owners), key=lambda layer: len(layer.trainable_weights), default=model).name


def _unlike(name: str, others: Collection[str]) -> str:
  """Returns the name, with a number behind it if others have it."""
  if name not in others:
    return name
  number = 1
  while f'{name}_{number}' in others:
    number += 1
  return f'{name}_{number}'
