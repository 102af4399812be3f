"""Which Keras models clients cannot train as `fit` would."""

import tensorflow as tf

from tff_adaptive._utils import private_apis


def check_kind(model: tf.keras.Model) -> None:
  """Refuses Keras models that clients cannot train as `fit` would.

  Args:
    model: The Keras model.

  Raises:
    ValueError: If it has several inputs or outputs, no known input, an output with a mask, weights
      with a constraint, or a mixed precision policy.
  """
  if not model.built or not getattr(model, 'inputs', None):
    raise ValueError(
      f'the Keras model {model.name!r} does not know its input: make it with the functional API, or'
      ' begin a Sequential model with tf.keras.Input(shape)'
    )
  if len(model.inputs) != 1 or len(model.outputs) != 1:
    raise ValueError(
      f'the Keras model {model.name!r} has {len(model.inputs)} inputs and {len(model.outputs)} '
      'outputs: one of each is needed; concatenate them'
    )
  for layer in (m for m in model.submodules if isinstance(m, tf.keras.layers.Layer)):
    if layer.compute_dtype != layer.variable_dtype:
      raise ValueError(
        f'the layer {layer.name!r} has the policy {layer.dtype_policy.name!r}: its casts belong to'
        ' the variables of Keras, in whose place a client has tensors of its own. Build the model'
        " under the policy 'float32'; for mixed precision write it as a models.Model"
      )
  if private_apis.carries_mask(model.outputs[0]):
    raise ValueError(
      f'the output of the Keras model {model.name!r} carries a mask, by which fit leaves padding '
      'out of loss and metrics; here they would count it. End the model with a layer that drops the'
      ' mask, such as Reshape, and give a loss and metrics as functions that leave padding out; or'
      ' build it without mask_zero and Masking'
    )
  for variable in model.trainable_variables:
    if getattr(variable, 'constraint', None) is not None:
      raise ValueError(
        f'the weight {variable.name!r} has a constraint ({type(variable.constraint).__name__}), '
        'which would not hold: clients and server average and step without it. Leave it out; a '
        'penalty is a regularizer, a norm of 1 a layer that divides by it'
      )


def num_tokens(model: tf.keras.Model) -> int | None:
  """How many rows the smallest Embedding directly behind the input has; None without one.

  Args:
    model: A Keras model with one input.
  """
  rows = [
    layer.input_dim
    for layer in model.layers
    if isinstance(layer, tf.keras.layers.Embedding)
    and any(
      tensor is model.inputs[0] for node in layer.inbound_nodes for tensor in node.keras_inputs
    )
  ]
  return min(rows, default=None)
