"""Names of a Keras model's weights that are the same each time it is built."""

import re

import tensorflow as tf


def canonical_names(model: tf.keras.Model) -> tuple[str, ...]:
  """Names of the trainable weights without Keras's counters of what was built before."""
  automatic = set()
  modules = [model, *model.submodules]
  for module in modules:
    plain = re.sub(r'_\d+$', '', module.name)
    if plain.replace('_', '') == type(module).__name__.lower():
      automatic.add(module.name)
  for both in (m for m in modules if isinstance(m, tf.keras.layers.Bidirectional)):
    for way, layer in (('forward_', both.forward_layer), ('backward_', both.backward_layer)):
      plain = re.sub(r'_\d+$', '', layer.name.removeprefix(way))
      if plain.replace('_', '') == type(layer).__name__.lower():
        automatic.add(layer.name)
  canonical: dict[str, str] = {}  # Of the layers' own names, in the order of their variables.
  names = []
  for variable in model.trainable_variables:
    layer, _, own = variable.name.partition(':')[0].rpartition('/')
    if layer not in canonical:
      parts = (re.sub(r'_\d+$', '', p) if p in automatic else p for p in layer.split('/'))
      plain, number = '/'.join(parts), 0
      while (name := f'{plain}_{number}' if number else plain) in canonical.values():
        number += 1
      canonical[layer] = name
    names.append(f'{canonical[layer]}/{own}')
  return tuple(names)
