"""The `LocalModel` of TFF's `VariableModel`, which includes Keras models."""

import collections
import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.client import weight_kinds
from tff_adaptive.client.local_model import LocalModel, LocalStep, check_trainable, gradients_of
from tff_adaptive.corrections.base import NamedWeight, Weights
from tff_adaptive.environment import check
from tff_adaptive.models import eager_constants


class VariableModel(LocalModel):
  """The `LocalModel` of a `VariableModel`, to whose variables each batch assigns the weights."""

  has_variables = True

  def __init__(self, model_fn: Callable[[], tff.learning.models.VariableModel]) -> None:
    # A step is a `tf.function`, which orders assignments and reads; run eagerly it would order
    # none.
    if tf.config.functions_run_eagerly():
      raise ValueError('tf.config.run_functions_eagerly is on; a VariableModel needs it off')
    check.require_keras_2()
    self._model_fn = model_fn
    self._last: tuple[Any, ...] = ()
    with tf.Graph().as_default() as graph:
      try:
        model = model_fn()
      except (AttributeError, TypeError) as error:
        raise check.explained_model_error(error) from error
      except RuntimeError as error:
        if not eager_constants.is_refusal(error):
          raise
        raise ValueError(eager_constants.MESSAGE) from error
      check.require_keras_2_model(model)
      if not isinstance(model, tff.learning.models.VariableModel):
        raise TypeError(
          'the model function must return a tff.learning.models.VariableModel, it returned '
          f'{type(model).__name__}: return tff.learning.models.from_keras_model(...), say'
        )
      check_trainable(model.trainable_variables)
      self.input_spec = model.input_spec
      self.metric_finalizers = model.metric_finalizers()
      names = [variable.name.removesuffix(':0') for variable in model.trainable_variables]
      shapes = [tuple(variable.shape) for variable in model.trainable_variables]
      self._named_weights = weight_kinds.of_names(names, shapes)
      variables = tf.nest.flatten(tff.learning.models.ModelWeights.from_model(model))
      loaded = _assigned(graph, variables)
    # By the position of a variable among all, the value that the model function gave it.
    self._loaded: dict[int, np.ndarray] = {}
    if loaded:
      with tf.init_scope():
        # Called once more outside of any graph, where loading weights takes effect.
        weights = tf.nest.flatten(tff.learning.models.ModelWeights.from_model(model_fn()))
        self._loaded = {i: weights[i].numpy() for i in loaded}
    self._model: Any = None  # The `VariableModel` of the client at work, see `start`.

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    weights = tff.learning.models.ModelWeights.from_model(self._model_fn())
    flat: list[Any] = tf.nest.flatten(weights)
    for i, value in self._loaded.items():
      flat[i] = tf.constant(value)
    weights = tf.nest.pack_sequence_as(weights, flat)
    # Tuples, as after a round: TFF's managers compare the structures of states.
    return type(weights)(tuple(weights.trainable), tuple(weights.non_trainable))

  def named_weights(self) -> tuple[NamedWeight, ...]:
    return self._named_weights

  def start(self, group_size: int | None = None) -> Any:
    self._model = self._model_fn()
    return collections.OrderedDict()

  def without_metrics(self) -> LocalModel:
    silent = copy.copy(self)
    silent._model = None  # It will have its own variables.
    silent._last = ()
    return silent

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    variables = tff.learning.models.ModelWeights.from_model(self._model)

    # A function, because the body of a loop in a plain graph does not order assignments and reads.
    @tf.function(autograph=False)
    def assign_and_differentiate() -> tuple[Weights, Weights]:
      for variable, value in zip(variables.trainable, weights):
        variable.assign(value)
      for variable, value in zip(variables.non_trainable, non_trainable):
        variable.assign(value)
      gradients, _ = gradients_of(
        lambda: (self._model.forward_pass(step.batch, training=True).loss, None),
        tuple(variables.trainable),
        step.factor,
      )
      return gradients, tuple(map(tf.identity, variables.non_trainable))

    graph = tf.compat.v1.get_default_graph()  # In a step gradients are taken one after another.
    with tf.control_dependencies([t for t in self._last if getattr(t, 'graph', None) is graph]):
      gradients, moved = assign_and_differentiate()
    self._last = gradients[-1:]
    return gradients, moved, metrics

  def metric_sums(self, metrics: Any, is_used: tf.Tensor) -> Any:
    with tf.control_dependencies([is_used]):  # Else the variables might be read before training.
      # If the method has no tf.function it returns variables, which are read here, too.
      sums = tf.nest.map_structure(tf.identity, self._model.report_local_unfinalized_metrics())
    return tf.nest.map_structure(lambda s: tf.where(is_used, s, tf.zeros_like(s)), sums)


def _assigned(graph: tf.Graph, variables: list[Any]) -> list[int]:
  """Returns the positions of the variables that a graph assigns other values than the initial ones.

  A model function does so if it loads pretrained weights, by `set_weights` or `load_weights`, say.
  In a graph such an assignment is an operation that nobody runs, so that the values are lost.
  """
  if any(variable.initializer is None for variable in variables):
    raise ValueError(check.MODEL_FROM_OUTSIDE)
  initializers = {variable.initializer.name for variable in variables}
  handles = {
    operation.inputs[0].name
    for operation in graph.get_operations()
    if operation.type == 'AssignVariableOp' and operation.name not in initializers
  }
  return [i for i, variable in enumerate(variables) if variable.handle.name in handles]
