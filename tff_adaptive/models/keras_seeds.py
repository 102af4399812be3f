"""Builds Keras models whose initial weights depend on a seed alone."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive.environment import check


def build(build_fn: Callable[[], tf.keras.Model], seed: int) -> tf.keras.Model:
  """Builds a Keras model whose initial weights are a function of the seed alone."""
  if isinstance(build_fn, tf.keras.layers.Layer) or not callable(build_fn):
    raise TypeError(
      f'build_fn is {type(build_fn).__name__}: give a function without arguments that makes the '
      'Keras model anew'
    )
  check.require_keras_2()
  # 29 tells these draws from others with the same seed; see `_utils.draws`.
  draws = np.random.default_rng([seed, 29])
  created: list[tf.Variable] = []

  def create(create_next: Callable, **arguments: Any) -> tf.Variable:
    arguments['initial_value'] = _seeded(
      arguments.get('initial_value'), int(draws.integers(2**31 - 1)), arguments.get('name')
    )
    created.append(create_next(**arguments))
    return created[-1]

  with tf.variable_creator_scope(create):
    model = build_fn()
  check.require_keras_2_model(model)
  if not isinstance(model, tf.keras.Model):
    raise TypeError(f'build_fn returned {type(model).__name__}, not a tf.keras.Model')
  if not created and model.built and model.weights:
    raise ValueError('build_fn returned a model that existed before: make it in the function')
  return model


def _seeded(initial_value: Any, seed: int, name: str | None) -> Any:
  """Returns an initial value that depends on `seed` alone, or a function that makes one."""
  if not callable(initial_value):
    return initial_value
  initializer = getattr(initial_value, 'func', None)
  if isinstance(initializer, tf.keras.initializers.Initializer):
    config = initializer.get_config()
    if 'seed' not in config or config['seed'] is not None:
      return initial_value
    # Deterministic: Keras 2's initializers draw statelessly once they have a seed.
    seeded = type(initializer).from_config({**config, 'seed': seed})
    return functools.partial(seeded, *initial_value.args, **initial_value.keywords)
  # Another function: it is kept if it gives the same twice.
  first = np.asarray(initial_value())
  second = np.asarray(initial_value())
  if not np.array_equal(first, second):
    raise ValueError(
      f'the initial weights {name!r} come from a function that draws others each time: take an '
      'initializer of tf.keras.initializers, which gets its seed from here'
    )
  return first
