"""The last part of a round: the server optimizer applies the aggregated pseudo-gradient."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

# Keys of TFF's scheduled optimizers.
_ROUND = 'round_num'
_OPTIMIZER = 'optimizer'
_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


def build(
  optimizer: tff.learning.optimizers.Optimizer, model_weights_type: Any
) -> tff.learning.templates.FinalizerProcess:
  """Builds the finalizer, which gives the aggregated pseudo-gradient to the server optimizer.

  As in TFF, an aggregate that is not finite is refused: weights and optimizer state do not change.
  A schedule of the rate still advances, because it counts rounds. TFF's own finalizer would stop
  the schedule, and is slower to build, because AutoGraph converts it. The measurement
  `update_non_finite` (int32) is 1 if the aggregate was refused, else 0. The state is the
  optimizer's. Raises TypeError if the state has strings.
  """
  trainable_type = model_weights_type.trainable

  @tff.tensorflow.computation
  def initial_state() -> Any:
    return optimizer.initialize(tff.types.type_to_tf_tensor_specs(trainable_type))

  state_type = initial_state.type_signature.result
  if tff.types.contains(state_type, lambda t: getattr(t, 'dtype', None) == np.str_):
    raise TypeError(f'{type(optimizer).__name__} has strings in its state, which must be numbers')

  @tff.tensorflow.computation(state_type, trainable_type, trainable_type)
  def step(state: Any, weights: Any, gradients: Any) -> tuple[Any, Any, Any]:
    is_refused, measurements = tff.learning.templates.reject_non_finite_update(None, gradients)
    # With AutoGraph, as in TFF: some optimizers need it, but not those of this package.
    stepped = tf.function(optimizer.next)(state, weights, gradients)
    if not (isinstance(stepped, (tuple, list)) and len(stepped) == 2):
      raise TypeError(
        f'{type(optimizer).__name__}.next must return the new state and the new weights, it '
        f'returned a {type(stepped).__name__}'
      )
    new_state, new_weights = stepped
    kept_state, kept_weights = tf.cond(
      is_refused, lambda: (_refused(state, new_state), weights), lambda: (new_state, new_weights)
    )
    return kept_state, kept_weights, measurements

  @tff.tensorflow.computation(state_type)
  def get_hparams(state: Any) -> Any:
    return optimizer.get_hparams(state)

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state: Any, hparams: Any) -> Any:
    return optimizer.set_hparams(state, hparams)

  @tff.federated_computation
  def initialize() -> Any:
    return tff.federated_eval(initial_state, tff.SERVER)

  @tff.federated_computation(
    initialize.type_signature.result,
    tff.FederatedType(model_weights_type, tff.SERVER),
    tff.FederatedType(trainable_type, tff.SERVER),
  )
  def finalize(state: Any, weights: Any, update: Any) -> tff.templates.MeasuredProcessOutput:
    state, trainable, measurements = tff.federated_map(step, (state, weights.trainable, update))
    new_weights = tff.learning.models.ModelWeights(trainable, weights.non_trainable)
    return tff.templates.MeasuredProcessOutput(state, tff.federated_zip(new_weights), measurements)

  return tff.learning.templates.FinalizerProcess(
    initialize, finalize, get_hparams_fn=get_hparams, set_hparams_fn=set_hparams
  )


def _refused(state: Any, new_state: Any) -> Any:
  """Returns the state after a refused aggregate: unchanged, but a schedule has advanced."""
  if not (isinstance(state, Mapping) and set(state) == {_ROUND, _OPTIMIZER}):
    return state
  # TFF's scheduled optimizers write the rate of the next round into the state that they wrap.
  optimizer_state = collections.OrderedDict(state[_OPTIMIZER])
  optimizer_state[_RATE] = new_state[_OPTIMIZER][_RATE]
  return collections.OrderedDict([(_ROUND, new_state[_ROUND]), (_OPTIMIZER, optimizer_state)])
