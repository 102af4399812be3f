"""Whether XLA can compile a model's local step: known once a process is built, not in a round."""

from typing import Any

import tensorflow as tf

from tff_adaptive import models


def check(model: Any, batch_size: int = 8) -> None:
  """Has XLA translate the gradient of a batch; ValueError with its reason where it cannot.

  TypeError for a model that is none of this project: others may keep variables, which XLA would
  share between clients.
  """
  if not isinstance(model, models.Model):
    raise TypeError(
      f'xla=True wants a tff_adaptive.models.Model, found {type(model).__name__}: leave xla out'
    )
  for name, spec in model.input_spec.items():
    if not spec.shape[1:].is_fully_defined():
      raise ValueError(
        f'xla=True wants examples of one shape, found {name}_spec {spec}: leave xla out'
      )
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  batch = {
    name: tf.zeros([batch_size, *spec.shape[1:]], spec.dtype)
    for name, spec in model.input_spec.items()
  }

  @tf.function(jit_compile=True, autograph=False)
  def gradient(weights: Any, x: tf.Tensor, y: tf.Tensor) -> tuple[Any, tf.Tensor]:
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss, means = model.loss_and_metrics(weights, x, y, seed=tf.constant([1, 2]))
    return tape.gradient(loss, weights), means

  try:
    gradient.experimental_get_compiler_ir(weights, batch['x'], batch['y'])(stage='hlo')
  except (tf.errors.OpError, ValueError, TypeError) as error:
    reason = ' '.join(str(error).split('{{')[0].split())
    raise ValueError(f'XLA cannot compile this model: {reason:.300}: leave xla out') from error
