"""Gives all kinds of models that a client can train one interface, `LocalModel`.

The kinds are `tff_adaptive.models.Model`, TFF's `FunctionalModel`, and TFF's `VariableModel`, which
includes Keras models. A `LocalModel` computes gradients and metrics of a batch at given weights.
"""

import collections
import copy
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive.client import weight_kinds
from tff_adaptive.corrections.base import Batch, NamedWeight, Weights, scale
from tff_adaptive.environment import check
from tff_adaptive.models import eager_constants

AnyModel: TypeAlias = (
  models.Model
  | tff.learning.models.FunctionalModel
  | Callable[[], tff.learning.models.VariableModel]
)


class LocalStep(NamedTuple):
  """The inputs of a local step.

  Attributes:
    batch: The examples, such as `OrderedDict(x, y)`.
    weighting: None, or `(shares [B], size)` for a model that `is_masked`: each example's share in
      the mean (0 for padding) and the number of examples that count. [G, B] and [G] for G clients.
    seed: int32 [2] for dropout, or [G, 2]; None for no dropout.
    active: None, or float32 [G]: 1, or 0 for a client that has taken all its steps.
    factor: None, or a factor of the gradients, float32 [].
    loss: None, or a function of a `corrections.base.Batch`, whose result is differentiated in place
      of the model's loss. Only `models.Model` has it, for one client.
  """

  batch: Any
  weighting: tuple[tf.Tensor, tf.Tensor] | None = None
  seed: tf.Tensor | None = None
  active: tf.Tensor | None = None
  factor: tf.Tensor | None = None
  loss: Callable[[Batch], tf.Tensor] | None = None


def wrap(model: AnyModel) -> 'LocalModel':
  """Returns the `LocalModel` of a model.

  Raises:
    TypeError: If it is not a model.
    ValueError: If it has no trainable weights.
  """
  if isinstance(model, models.Model):
    _check_trainable(model.initial_weights[0])
    return _SeededModel(model)
  if isinstance(model, tff.learning.models.FunctionalModel):
    _check_trainable(model.initial_weights[0])
    return _FunctionalModel(model)
  check.require_keras_2_model(model)
  if isinstance(model, tf.keras.layers.Layer):  # It is callable too.
    raise TypeError(
      f'model is a Keras model ({type(model).__name__}): give a function without arguments that '
      'makes it anew and returns tff.learning.models.from_keras_model(it, ...)'
    )
  if callable(model) and not isinstance(model, tff.learning.models.VariableModel):
    return _VariableModel(model)
  raise TypeError(
    'model must be a tff_adaptive.models.Model, a tff.learning.models.FunctionalModel or a '
    f'function that returns a new tff.learning.models.VariableModel, found {type(model).__name__}'
  )


class LocalModel:
  """The interface of models for the loop of local steps.

  Attributes:
    input_spec: The specs of a batch's tensors.
    is_masked: Whether `gradients` uses `LocalStep.weighting`.
    has_client_axis: Whether the model's operations also take a leading axis of clients.
    has_penalty: Whether the loss has a term that depends on the weights only, not on examples.
    couples_examples: Whether an example's loss depends on the other examples of its batch.
    has_variables: Whether the model creates TensorFlow variables while it is traced.
    takes_loss: Whether `gradients` uses `LocalStep.loss`.
    metric_finalizers: The argument of `tff.learning.metrics.sum_then_finalize`.
  """

  input_spec: Any
  is_masked = False
  has_client_axis = False
  has_penalty = False
  couples_examples = False
  has_variables = False
  takes_loss = False
  metric_finalizers: Any

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the initial weights; called inside a `tff.tensorflow.computation`."""
    raise NotImplementedError

  def named_weights(self) -> tuple[NamedWeight, ...]:
    """Returns the trainable weights by name and kind, for `Correction.resolved`."""
    raise NotImplementedError

  def mean_loss(self, weights: Weights, non_trainable: Weights, batch: Any) -> tf.Tensor:
    """Returns the mean loss of a batch, without dropout. Only models that take losses have it."""
    raise NotImplementedError

  def features(self, weights: Weights, batch: Any) -> tf.Tensor:
    """Returns the inputs of the last layer, float32 [B, size], without dropout."""
    raise ValueError(
      f'{type(self).__name__.strip("_")} has no features, which this algorithm needs: give a'
      ' tff_adaptive.models.Model'
    )

  def start(self, group_size: int | None = None) -> Any:
    """Returns the initial metrics of a client or of G clients; a training graph calls it once."""
    raise NotImplementedError

  def for_groups(self) -> 'LocalModel':
    """Returns the model for G clients at once; weights, batch and metrics get a leading axis G."""
    raise NotImplementedError(f'{type(self).__name__} trains one client at a time')

  def without_metrics(self) -> 'LocalModel':
    """Returns the model without metrics, for gradients at weights other than the local ones."""
    return self

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    """Computes the gradients of a batch's mean loss.

    Args:
      weights: Trainable weights, a tuple of tensors.
      non_trainable: The other weights, a tuple of tensors: the server's, or those that the previous
        step returned.
      step: The batch.
      metrics: The result of `start`, or of the previous step.

    Returns:
      `(gradients, non_trainable, metrics)`: the (dense) gradients; the other weights as the model
      leaves them after the batch, such as a step counter or moving statistics; and the metrics with
      the batch added.
    """
    raise NotImplementedError

  def metric_sums(self, metrics: Any, is_used: tf.Tensor) -> Any:
    """Returns the metrics to sum over clients; zeros if `is_used` (bool) is false."""
    zero = self.start()
    return tf.cond(is_used, lambda: metrics, lambda: zero)


class _SeededModel(LocalModel):
  """The `LocalModel` of a `tff_adaptive.models.Model`, for one client or a group."""

  is_masked = True
  takes_loss = True

  def __init__(self, model: models.Model, in_group: bool = False) -> None:
    self.model = model
    self.has_client_axis = model.client_axis
    self.has_penalty = model.penalty is not None
    self.couples_examples = model.couples_examples
    self.input_spec = model.input_spec
    self.metric_finalizers = models.finalize_metrics  # The model's method uses AutoGraph.
    self._is_mapped = in_group and not model.client_axis

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    trainable, _ = self.model.initial_weights
    return tff.learning.models.ModelWeights(tuple(map(tf.constant, trainable)), ())

  def start(self, group_size: int | None = None) -> Any:
    # Numerators and denominators of all metrics in one vector: each tensor that the loop of steps
    # carries costs time in every step.
    shape = [2 * len(self.model.trained_metric_names)]
    return tf.zeros(shape if group_size is None else [group_size, *shape])

  def for_groups(self) -> LocalModel:
    return _SeededModel(self.model, in_group=True)

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    x = step.batch['x']
    y = step.batch['y']
    # Without a weighting there is no padding: all rows count, and equally.
    shares, size = step.weighting or (None, tf.cast(tf.shape(y)[0], tf.float32))

    def differentiate(arguments: tuple[Any, ...]) -> tuple[Weights, tf.Tensor]:
      theta, x, y, shares, seed = arguments
      loss = functools.partial(self.model.loss_and_metrics, shares=shares, training=True, seed=seed)
      if step.loss is not None:
        loss = functools.partial(self._changed_loss, step.loss, shares=shares, seed=seed)
      # With a client axis the losses are independent: the gradient of their sum is each one's own.
      return _gradients(lambda: loss(theta, x, y), theta, step.factor)

    # The tape is inside the map, which drops the custom gradients of operations.
    arguments = (weights, x, y, shares, step.seed)
    if self._is_mapped:
      gradients, means = tf.vectorized_map(differentiate, arguments)
    else:
      gradients, means = differentiate(arguments)
    return gradients, non_trainable, metrics + size[..., tf.newaxis] * means

  def named_weights(self) -> tuple[NamedWeight, ...]:
    return weight_kinds.of_model(self.model)

  def mean_loss(self, weights: Weights, non_trainable: Weights, batch: Any) -> tf.Tensor:
    loss, _ = self.model.loss_and_metrics(weights, batch['x'], batch['y'])
    return tf.cast(loss, tf.float32)

  def features(self, weights: Weights, batch: Any) -> tf.Tensor:
    return tf.cast(self.model.features(tuple(weights), batch['x'], False, None), tf.float32)

  def _changed_loss(
    self,
    change: Callable[[Batch], tf.Tensor],
    theta: Weights,
    x: tf.Tensor,
    y: tf.Tensor,
    *,
    shares: tf.Tensor | None,
    seed: tf.Tensor | None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the loss that a part makes of a batch's, and the means of the model's own metrics."""
    outputs = self.model.forward(tuple(theta), x, True, seed)
    loss, means = self.model.loss_of_predictions(outputs, theta, y, shares=shares, training=True)
    batch = Batch(
      theta=tuple(theta),
      x=x,
      y=y,
      outputs=outputs,
      loss=loss,
      shares=shares,
      outputs_at=lambda weights: self.model.forward(tuple(weights), x, True, seed),
      features_at=lambda weights, layer=None: self.model.features(weights, x, True, seed, layer),
    )
    return change(batch), means

  def metric_sums(self, metrics: Any, is_used: tf.Tensor) -> Any:
    # Not a product: the sums of a client that diverged may be NaN.
    return self.model.unpack_metrics(tf.where(is_used[..., tf.newaxis], metrics, 0.0))


class _FunctionalModel(LocalModel):
  """The `LocalModel` of a `tff.learning.models.FunctionalModel`."""

  def __init__(self, model: tff.learning.models.FunctionalModel) -> None:
    self._model = model
    self.input_spec = model.input_spec
    self.metric_finalizers = model.finalize_metrics

  def initial_weights(self) -> tff.learning.models.ModelWeights:
    trainable, non_trainable = self._model.initial_weights
    return tff.learning.models.ModelWeights(
      tuple(map(tf.constant, trainable)), tuple(map(tf.constant, non_trainable))
    )

  def named_weights(self) -> tuple[NamedWeight, ...]:
    return weight_kinds.of_arrays(self._model.initial_weights[0])

  def start(self, group_size: int | None = None) -> Any:
    return self._model.initialize_metrics_state()

  def gradients(
    self, weights: Weights, non_trainable: Weights, step: LocalStep, metrics: Any
  ) -> tuple[Weights, Weights, Any]:
    if isinstance(step.batch, dict):
      x = step.batch['x']
      y = step.batch['y']
    else:
      x, y = step.batch

    def loss_and_output() -> tuple[tf.Tensor, Any]:
      output = self._model.predict_on_batch((weights, non_trainable), x, training=True)
      loss = self._model.loss(output=output, label=y)
      return loss, (loss, output)

    gradients, (loss, output) = _gradients(loss_and_output, weights, step.factor)
    batch_output = tff.learning.models.BatchOutput(
      loss=loss, predictions=output, num_examples=tf.shape(tf.nest.flatten(output)[0])[0]
    )
    metrics = self._model.update_metrics_state(metrics, batch_output=batch_output, labels=y)
    return gradients, non_trainable, metrics


class _VariableModel(LocalModel):
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
      _check_trainable(model.trainable_variables)
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
      gradients, _ = _gradients(
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


def _check_trainable(weights: Any) -> None:
  if not tf.nest.flatten(weights):
    raise ValueError(
      'the model has no trainable weights, so that clients have nothing to train: leave '
      'trainable=False out of the layers that they should train'
    )


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


def _gradients(
  function: Callable[[], tuple[tf.Tensor, Any]], weights: tuple[Any, ...], factor: Any
) -> tuple[Weights, Any]:
  """Returns factor * the gradients of `function`'s first result, the loss, and its second result.

  In graphs it multiplies the loss where it can: large models save a pass over their weights.
  """
  before = len(tf.compat.v1.get_default_graph().get_operations())
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss, others = function()
  operations = tf.compat.v1.get_default_graph().get_operations()[before:]
  scales_loss = factor is not None and bool(operations) and all(map(_is_linear, operations))
  factor_of_loss = None
  if scales_loss:
    factor_of_loss = scale(factor, tf.ones_like(loss))
    factor = None
  gradients = tape.gradient(loss, weights, factor_of_loss, 'zero')
  # Embeddings have gradients as `IndexedSlices`, which corrections and sums do not take.
  gradients = tuple(tf.convert_to_tensor(g) for g in gradients)
  if factor is not None:
    gradients = tuple(scale(factor, g) for g in gradients)
  return gradients, others


def _is_linear(operation: tf.Operation) -> bool:
  """Returns whether an operation's gradient is linear in its result's, and exact in float32."""
  attributes = operation.node_def.attr  # `tf.custom_gradient` sets '_gradient_op_type'.
  has_function = any(a.HasField('func') or a.list.func for a in attributes.values())
  is_short = any(t.dtype in (tf.float16, tf.bfloat16) for t in operation.outputs)
  return not ('_gradient_op_type' in attributes or has_function or is_short)
