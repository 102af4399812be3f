"""Names of the weights of Keras models that do not depend on what was built before."""

import re
from collections.abc import Collection

import tensorflow as tf


def canonical(model: tf.keras.Model) -> tuple[str, ...]:
  """Returns the names of the trainable weights without Keras's layer counters."""
  automatic = set()
  for module in (model, *model.submodules):
    # Bidirectional puts the direction before the names of its layers.
    plain = re.sub(r'^(forward|backward)_|_\d+$', '', module.name)
    # Keras derives such a name from the class; a name that a user chose stays, with its number.
    if plain.replace('_', '') == type(module).__name__.lower():
      automatic.add(module.name)
  canonical: dict[str, str] = {}  # Layer's name -> canonical name, in the order of variables.
  names: list[str] = []
  for variable in model.trainable_variables:
    layer, _, weight = variable.name.partition(':')[0].rpartition('/')
    if layer not in canonical:
      parts = []
      for part in layer.split('/'):
        if part in automatic:
          part = re.sub(r'_\d+$', '', part)
        parts.append(part)
      canonical[layer] = _unlike('/'.join(parts), canonical.values())
    names.append(_unlike(f'{canonical[layer]}/{weight}', names))
  return tuple(names)


def _unlike(name: str, others: Collection[str]) -> str:
  """Returns the name, with a number behind it if others have it."""
  if name not in others:
    return name
  number = 1
  while f'{name}_{number}' in others:
    number += 1
  return f'{name}_{number}'
