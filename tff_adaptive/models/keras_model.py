"""Keras models as a `Model`: a pure function of (weights, batch, seed)."""

import functools
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import private_apis
from tff_adaptive.models import (
  eager_constants,
  keras_measures,
  keras_names,
  keras_seeds,
  model as model_lib,
  moving_statistics as statistics_lib,
)

# In training these layers draw from the seed; other layers that draw are refused.
_SEEDED_LAYERS = (
  tf.keras.layers.Dropout,
  tf.keras.layers.AlphaDropout,
  tf.keras.layers.GaussianDropout,
  tf.keras.layers.GaussianNoise,
)
_IMPURE = re.compile(
  r'(?!Stateless).*(Variable|VarHandle|Resource|Assign|Random|Multinomial|PyFunc)'
)


class _Draws:
  """A replacement of a Keras layer's random generator that draws from a forward pass's seed."""

  def __init__(self, salt: int):
    self._salt = salt
    self._calls = 0
    self._seed: Any = None

  def restart(self, seed: tf.Tensor | None) -> None:
    """Begins a forward pass, which draws from `seed`."""
    self._seed = seed
    self._calls = 0

  def dropout(self, inputs: Any, rate: float, noise_shape: Any = None) -> tf.Tensor:
    """Applies dropout; with a `noise_shape` that has dimensions of 1 it drops whole slices."""
    if noise_shape is None:
      return model_lib.dropout(inputs, rate, self._seed, self._next_salt())
    ones = tf.ones(noise_shape, inputs.dtype)
    return inputs * model_lib.dropout(ones, rate, self._seed, self._next_salt())

  def random_normal(
    self, shape: Any, mean: float = 0.0, stddev: float = 1.0, dtype: Any = tf.float32
  ) -> tf.Tensor:
    """Draws from a normal distribution."""
    seed = model_lib.salted(self._seed, self._next_salt())
    return tf.random.stateless_normal(shape, seed, mean, stddev, dtype)

  def random_uniform(self, shape: Any) -> tf.Tensor:
    """Draws uniformly from [0, 1)."""
    return tf.random.stateless_uniform(shape, model_lib.salted(self._seed, self._next_salt()))

  def _next_salt(self) -> int:
    self._calls += 1  # Each call of a layer draws anew.
    return self._salt + 1000 * (self._calls - 1)


class KerasModel(model_lib.Model):
  """A Keras model as a function of its weights, made by `from_keras`.

  While the model runs, tensors replace the layers' variables, which are restored afterwards.

  Attributes:
    weight_names: The trainable weights' names, such as 'dense/kernel', in order. They lack Keras's
      layer counters, and are therefore the same each time the model is built. Moving statistics
      follow, if they are weights.
    constants: The other arrays, in the order of Keras's `non_trainable_variables`.
    statistics: For each weight whether it is a moving statistic; () if there is none.
  """

  def __init__(
    self,
    build_fn: Callable[[], tf.keras.Model],
    keras: tf.keras.Model,
    loss: Any,
    metrics: Sequence[Any],
    y_spec: tf.TensorSpec | None,
    moving_statistics: bool = False,
  ):
    """Creates the model from the arguments of `from_keras` and the model that `build_fn` built."""
    _check_kind(keras)
    self._build_fn = build_fn
    self._keras = keras
    self._modules = [keras, *keras.submodules]
    # While one thread traces the model, its variables are replaced for all threads.
    self._lock = threading.RLock()
    if not keras.trainable_variables:
      raise ValueError(f'the Keras model {keras.name!r} has no trainable weights')
    count = len(keras.trainable_variables)
    self._recorder: statistics_lib.Recorder | None = None
    if moving_statistics:
      self._recorder = statistics_lib.Recorder(keras)
      self.statistics = (False,) * count + (True,) * len(self._recorder.variables)
      count = len(self.statistics)
    else:
      statistics_lib.freeze(keras)
    variables, others = statistics_lib.split(keras, count)
    self._initial = tuple(v.numpy() for v in variables)
    self.constants = tuple(v.numpy() for v in others)
    # By identity, because TensorFlow's variables compare by their values.
    self._position = {id(v): i for i, v in enumerate([*variables, *others])}
    self.weight_names = keras_names.canonical(keras, variables)
    self._regularizers = list(self._find_regularizers())  # (function, number of its weight)
    drawing = [m for m in self._modules if isinstance(m, _SEEDED_LAYERS)]
    self._draws = [_Draws(salt) for salt in range(1, len(drawing) + 1)]
    for layer, draws in zip(drawing, self._draws):
      private_apis.replace_randomness(layer, draws)
    self._slots = list(self._find_slots())
    self._has_constants = self._check_purity()

    def penalty(weights: Sequence[tf.Tensor]) -> tf.Tensor:
      return tf.add_n([function(weights[i]) for function, i in self._regularizers])

    x = keras.inputs[0]
    output = keras.outputs[0].shape
    if y_spec is None:
      y_spec = keras_measures.target_spec(loss, output)
    forward = self._run
    if self._has_constants:
      forward = eager_constants.lifted(self._run)
    outputs = keras_measures.outputs_of(loss, y_spec, output)
    super().__init__(
      initial_weights=self._initial,
      forward=forward,
      example_loss=keras_measures.example_loss(loss, y_spec, output),
      metrics=keras_measures.metrics_of(metrics, y_spec, output, outputs),
      x_spec=tf.TensorSpec([None, *x.shape[1:]], x.dtype),
      y_spec=y_spec,
      penalty=penalty if self._regularizers else None,
      outputs=outputs,
      features=self._features_of_last_layer(),
    )

  def to_keras(self, weights: Sequence[Any]) -> tf.keras.Model:
    """Returns a new Keras model, not compiled, with the given trainable weights.

    Args:
      weights: Arrays or tensors with the shapes of `initial_weights[0]`.
    """
    keras = self._build_fn()
    variables, others = statistics_lib.split(keras, len(self._initial))
    for variable, value in zip([*variables, *others], [*weights, *self.constants]):
      variable.assign(np.asarray(value))
    return keras

  def values_of(self, keras: tf.keras.Model) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns (weights, constants), the arrays of a Keras model that `to_keras` has made."""
    variables, others = statistics_lib.split(keras, len(self._initial))
    return tuple(v.numpy() for v in variables), tuple(v.numpy() for v in others)

  def _features_of_last_layer(self) -> Callable[..., tf.Tensor] | None:
    """Returns the function for `Model.features`; None if the last layer has no single input."""
    # A softmax or a flattening after the last layer with weights is none of its own.
    with_weights = [layer for layer in self._keras.layers if layer.trainable_variables]
    last_input = with_weights[-1].input
    if not tf.keras.backend.is_keras_tensor(last_input):
      return None
    return self._values_of(last_input)

  def _features_of(self, layer: str | None) -> Callable[..., tf.Tensor]:
    if layer is None:
      return super()._features_of(layer)
    names = [of_model.name for of_model in self._keras.layers]
    if layer not in names:
      raise ValueError(f'the model has no layer {layer!r}; its layers are {", ".join(names)}.')
    output = self._keras.get_layer(layer).output
    if not tf.keras.backend.is_keras_tensor(output):
      raise ValueError(f'the layer {layer!r} has no single output: name another one.')
    return self._values_of(output)

  def _values_of(self, tensor: Any) -> Callable[..., tf.Tensor]:
    """Returns a function (weights, x, training, seed) -> a tensor of the model, [B, size]."""
    run = functools.partial(self._run, of=tf.keras.Model(self._keras.inputs[0], tensor))

    def features(weights: Any, x: Any, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
      values = run(weights, x, training, seed)
      return tf.reshape(values, [tf.shape(values)[0], -1])

    if self._has_constants:
      return eager_constants.lifted(features)
    return features

  def _run(
    self,
    weights: Any,
    x: Any,
    training: bool,
    seed: tf.Tensor | None,
    of: tf.keras.Model | None = None,
  ) -> tf.Tensor:
    """Computes the output of the Keras model, or of a part of it; see `Model.forward`."""
    weights = tuple(map(tf.convert_to_tensor, weights))
    dtype = self._initial[0].dtype
    if weights[0].dtype != dtype:
      raise ValueError(
        f'a Keras model computes with the dtype it was built with ({dtype}), its weights are'
        f' {weights[0].dtype.name}: leave mixed precision out, or write the model as a models.Model'
      )
    values = [*weights, *map(tf.constant, self.constants)]  # In the order of `_position`.
    with self._lock, self._replaced(values):
      if self._recorder is not None:
        self._recorder.restart(weights[-len(self._recorder.variables) :])
      for draws in self._draws:  # Each pass draws the same for the same seed.
        draws.restart(seed)
      # Only the layers that draw behave differently in training.
      run = self._keras if of is None else of
      return run(tf.convert_to_tensor(x), training=training and seed is not None)

  def forward_and_move(self, weights: Any, x: Any, seed: tf.Tensor | None) -> tuple[Any, Any]:
    if self._recorder is None:
      return super().forward_and_move(weights, x, seed)
    run = self._run_and_move
    if self._has_constants:
      run = eager_constants.lifted(run)
    return run(weights, x, seed)

  def _run_and_move(self, weights: Any, x: Any, seed: tf.Tensor | None) -> tuple[Any, Any]:
    if self._recorder is None:
      return self._run(weights, x, True, seed), ()
    with self._lock:  # Until the result is read no other pass may begin.
      output = self._run(weights, x, True, seed)
      return output, self._recorder.result()

  @contextmanager
  def _replaced(self, values: Sequence[tf.Tensor]) -> Iterator[None]:
    before = [attributes[name] for attributes, name in self._slots]
    try:
      for (attributes, name), value in zip(self._slots, before):
        attributes[name] = self._with_tensors(value, values)
      yield
    finally:
      for (attributes, name), value in zip(self._slots, before):
        attributes[name] = value

  def _with_tensors(self, value: Any, values: Sequence[tf.Tensor]) -> Any:
    if isinstance(value, Mapping):
      return {k: self._with_tensors(v, values) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
      return [self._with_tensors(v, values) for v in value]
    i = self._position.get(id(value))
    if i is None:
      return value
    return values[i]

  def _find_slots(self) -> Iterator[tuple[Any, str]]:
    """Yields (attributes of a layer, name) for each attribute that is or contains a variable."""

    def has_variable(value: Any) -> bool:
      if isinstance(value, Mapping):
        value = value.values()
      if isinstance(value, (list, tuple, ValuesView)):
        return any(map(has_variable, value))
      return id(value) in self._position

    # `vars` bypasses Keras's __setattr__, which would take the tensors for variables.
    for attributes in map(vars, self._modules):
      for name, value in attributes.items():
        if not private_apis.KERAS_LISTS.match(name) and has_variable(value):
          yield attributes, name

  def _find_regularizers(self) -> Iterator[tuple[Callable, int]]:
    for layer in self._modules:
      if getattr(layer, 'activity_regularizer', None) is not None:
        raise ValueError(
          f'the layer {layer.name!r} has an activity_regularizer, which clients cannot train with: '
          'put it into the loss'
        )
      for loss in private_apis.losses_of(layer):
        # Keras adds a weight's regularizer as partial(partial(function, variable)).
        inner = None
        if isinstance(loss, functools.partial):
          inner = loss.args[0]
        if not isinstance(inner, functools.partial) or id(inner.args[0]) not in self._position:
          raise ValueError(
            f'the layer {layer.name!r} adds a loss of its own, which clients cannot train with: '
            'put it into the loss'
          )
        if self._position[id(inner.args[0])] < len(self._initial):  # Else a constant.
          yield inner.func, self._position[id(inner.args[0])]

  def _check_purity(self) -> bool:
    """Raises ValueError unless the model is a pure function of weights, inputs and seed.

    Returns whether it uses constant tensors, as a Normalization layer does that was adapted.
    """
    x = self._keras.inputs[0]
    specs = tuple(tf.TensorSpec(w.shape, w.dtype) for w in self._initial)
    signature = (specs, tf.TensorSpec([None, *x.shape[1:]], x.dtype), tf.TensorSpec([2], tf.int32))

    @tf.function(input_signature=signature, autograph=False)
    def train(weights: Any, x: Any, seed: Any) -> Any:
      return self._run_and_move(weights, x, seed)

    where = (
      f'the Keras model {self._keras.name!r} is no pure function of its weights, input and seed'
    )
    hint = (
      'leave such layers out (dropout inside RNN layers: put a Dropout layer before; augmentation: '
      'do it to the data; moving statistics: GroupNormalization)'
    )
    try:
      concrete = train.get_concrete_function()
    except (TypeError, ValueError) as error:
      # TensorFlow has this class in no public module.
      if type(error).__name__ != 'InaccessibleTensorError':
        raise
      raise ValueError(
        f'{where}: BatchNormalization runs in a function of its own (tf.function, tf.map_fn), which'
        ' keeps its statistics: leave moving_statistics out'
      ) from None
    except AttributeError as error:
      if 'assign' not in str(error):
        raise
      reason = ' '.join(str(error).split())[:200]
      raise ValueError(f'{where}: a layer changes its variables ({reason}); {hint}') from None
    graph = concrete.graph
    if graph.variables:
      names = ', '.join(v.name for v in graph.variables)
      raise ValueError(f'{where}: it reads {names}; {hint}')
    definition = graph.as_graph_def()
    nodes = private_apis.all_nodes(definition)
    impure = sorted({f'{n.name} ({n.op})' for n in nodes if _IMPURE.match(n.op)})
    if impure:
      raise ValueError(f'{where}: {", ".join(impure[:3])}; {hint}')
    return private_apis.captures_eager_tensors(concrete)


def from_keras(
  build_fn: Callable[[], tf.keras.Model],
  loss: Any,
  metrics: Sequence[Any] = (),
  *,
  seed: int = 0,
  y_spec: tf.TensorSpec | None = None,
  moving_statistics: bool = False,
) -> KerasModel:
  """Converts a functional or Sequential Keras model to a `Model`.

  Initial weights depend on `seed` alone: every Keras initializer without a seed gets one, and an
  initializer with a seed keeps it. Dropout and noise layers draw from the seeds that
  `Model.forward` takes. Weight regularizers become the penalty. Weights that are not trainable,
  such as those of a layer with `trainable=False`, do not change.

  Args:
    build_fn: A function without arguments that builds a new model with one input and one output. It
      may load pretrained weights.
    loss: A loss of Keras or its name, or a function `(y_true, y_pred) -> [B]` or [B, ...].
    metrics: Metrics of Keras, or their names, that are means over examples (accuracies, mean
      errors, cross-entropies) or whose state is a sum (AUC, Precision, Recall, F1Score, MeanIoU and
      others); functions `(y_true, y_pred) -> [B]` or [B, ...]; or names such as 'f1' and 'auc_pr',
      see `models.with_metrics`.
    seed: The seed of the initial weights.
    y_spec: Spec of a batch of targets, leading dimension None. By default int32 class numbers for
      sparse losses, float32 in the output's shape for others.
    moving_statistics: Whether BatchNormalization normalises a batch by its own mean and variance in
      training, as in Keras, and its moving statistics are weights, which follow the trainable ones.
      They must stay at the clients (`corrections.FedBN`): the server has no batches. TFF's own
      algorithms do not move them. By default they keep their initial values, also in training.

  Returns:
    The model. Its `to_keras` returns a Keras model with trained weights.

  Raises:
    TypeError: If `build_fn` is no function, or does not return a Keras model.
    ValueError: If the model has several inputs or outputs, no known input, an output with a mask,
      no weights, a weight with a constraint, losses of its own (`add_loss`, activity regularizers)
      or a mixed precision policy. Also if it is not a pure function of weights, inputs and seed, if
      targets do not fit output and loss, or if a loss or metric is neither a mean over examples nor
      a known sum, or has `ignore_class`.

  Warns:
    UserWarning: If the model has BatchNormalization whose moving statistics do not change.
  """
  keras = keras_seeds.build(build_fn, seed)
  return KerasModel(build_fn, keras, loss, metrics, y_spec, moving_statistics)


def _check_kind(model: tf.keras.Model) -> None:
  """Raises ValueError for a Keras model that clients cannot train as `fit` would."""
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
        f'the layer {layer.name!r} has the policy {layer.dtype_policy.name!r}, whose casts belong '
        "to Keras's variables: build it under 'float32', or write the model as a models.Model"
      )
  if private_apis.carries_mask(model.outputs[0]):
    raise ValueError(
      f'the output of the Keras model {model.name!r} carries a mask, which loss and metrics would '
      'not see here: build it without mask_zero and Masking, or end it with a layer that drops the '
      'mask, such as Reshape, and give functions that leave padding out'
    )
  for variable in model.trainable_variables:
    if getattr(variable, 'constraint', None) is not None:
      raise ValueError(
        f'the weight {variable.name!r} has a constraint ({type(variable.constraint).__name__}), '
        'which would not hold: clients and server average and step without it. Leave it out'
      )
