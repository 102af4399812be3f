"""Builds a `tff.learning.optimizers.Optimizer` from a formula for one weight tensor.

The weights may be any structure that `tf.nest` knows, of floating-point tensors. For 16-bit weights
the state and the step are float32, because with 8 bits of precision a moving average would lose
most of what is added to it. If a weight's gradient is None, the weight and its state do not change.

The state is an `OrderedDict`: the hyperparameters, then `step` (int32, the number of steps done),
then the slots (tensors that the formula updates, such as m and v) in the structure of the weights.
"""

import collections
import numbers
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import registry, schedules
from tff_adaptive._utils import validation

Rate: TypeAlias = float | Callable[[Any], Any]
State: TypeAlias = collections.OrderedDict[str, Any]
Tensors: TypeAlias = dict[str, tf.Tensor]
Stepped: TypeAlias = tuple[tf.Tensor, Tensors]  # The new weight and slots.

RATE = tff.learning.optimizers.LEARNING_RATE_KEY
_STEP = 'step'
_RATE_HINT = 'give a rate such as 0.1, or 0 to keep the model as it is'


class At(NamedTuple):
  """The values of one weight tensor before a step.

  Attributes:
    x: The weight tensor x_t, float32 or float64.
    g: The gradient, of the shape and dtype of x. For a server it is the pseudo-gradient.
    slots: The slots by name, such as m: tensors of the shape and dtype of x.
    h: The hyperparameters by name: scalar tensors of the dtype of x.
    t: The number of the step, counted from 1, a scalar tensor of the dtype of x.
  """

  x: tf.Tensor
  g: tf.Tensor
  slots: Tensors
  h: Tensors
  t: tf.Tensor

  def average(self, beta: str, slot: str, new: tf.Tensor) -> tf.Tensor:
    """Returns the moving average beta * slot + (1 - beta) * new.

    Args:
      beta: The name of the decay's hyperparameter; without it the decay is 0.
      slot: The name of the slot.
      new: The value to average in, of the weight's shape.
    """
    decay = self.h.get(beta, 0.0)
    return decay * self.slots[slot] + (1 - decay) * new

  def moved(self, direction: tf.Tensor) -> tf.Tensor:
    """Returns x minus the learning rate times the direction."""
    return self.x - self.h[RATE] * direction


class PerCoordinate(tff.learning.optimizers.Optimizer):
  """A TFF optimizer that applies a formula to each weight tensor.

  Args:
    hparams: The values of the hyperparameters by name.
    slots: The initial values, by name, of the tensors that the formula updates, such as m and v.
    formula: A function from an `At` to the new weight x_{t+1} and the new slots.
  """

  def __init__(
    self, hparams: dict[str, float], slots: dict[str, float], formula: Callable[[At], Stepped]
  ) -> None:
    self._hparams = collections.OrderedDict(hparams)
    self._slots = slots
    self._formula = formula

  def initialize(self, specs: Any) -> State:
    for spec in tf.nest.flatten(specs):
      _computed_in(spec.dtype)  # Raises where the weights are not floating-point.
    state = collections.OrderedDict(self._hparams)
    state[_STEP] = tf.constant(0, tf.int32)
    for name, first in self._slots.items():
      state[name] = tf.nest.map_structure(
        lambda spec, first=first: tf.fill(spec.shape, tf.constant(first, _computed_in(spec.dtype))),
        specs,
      )
    return state

  @tf.autograph.experimental.do_not_convert  # AutoGraph takes 0.4 s for the functions called.
  def next(self, state: State, weights: Any, gradients: Any) -> tuple[State, Any]:
    gradients = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
    tff.learning.optimizers.check_weights_gradients_match(weights, gradients)
    count = state[_STEP] + 1

    flat_slots = {name: tf.nest.flatten(state[name]) for name in self._slots}
    flat_weights = tf.nest.flatten(weights)
    for i, (weight, gradient) in enumerate(zip(flat_weights, tf.nest.flatten(gradients))):
      if gradient is None:
        continue
      dtype = _computed_in(weight.dtype)
      at = At(
        tf.cast(weight, dtype),
        tf.cast(gradient, dtype),
        {name: flat[i] for name, flat in flat_slots.items()},
        {name: _scalar(state[name], dtype) for name in self._hparams},
        tf.cast(count, dtype),
      )
      new_weight, new_slots = self._formula(at)
      flat_weights[i] = tf.cast(new_weight, weight.dtype)
      for name, value in new_slots.items():
        flat_slots[name][i] = value

    new_state = collections.OrderedDict(state)
    new_state[_STEP] = count
    for name, flat in flat_slots.items():
      new_state[name] = tf.nest.pack_sequence_as(state[name], flat)
    return new_state, tf.nest.pack_sequence_as(weights, flat_weights)

  def get_hparams(self, state: State) -> State:
    return collections.OrderedDict((name, state[name]) for name in self._hparams)

  def set_hparams(self, state: State, hparams: Mapping[str, Any]) -> State:
    strangers = [name for name in hparams if name not in self._hparams]
    if strangers:
      raise KeyError(f'no hyperparameter {strangers[0]!r}: there are {", ".join(self._hparams)}.')
    return collections.OrderedDict(state, **hparams)


def build(
  entry: registry.ServerOptimizer,
  formula: Callable[[At], Stepped],
  learning_rate: Rate,
  slots: dict[str, float],
  keeps_m: bool = False,
  **values: float,
) -> tff.learning.optimizers.Optimizer:
  """Builds an optimizer, with a schedule if the learning rate is a function of the round.

  Args:
    entry: The entry of the registry, which says how hyperparameters are checked.
    formula, slots: A formula, and the initial values of its slots by name; see `PerCoordinate`.
    learning_rate: eta, or a function of the round, counted from 0.
    keeps_m: Whether the state has the slot m even if `beta1` or `momentum` is 0.
    **values: The values of the other hyperparameters.
  """
  schedule = None
  if callable(learning_rate):
    schedule = learning_rate
    learning_rate = 0.0
  check = {h.name: h.checked for h in entry.hyperparameters}
  hparams = {RATE: float(validation.at_least_zero(RATE, learning_rate, _RATE_HINT))}
  for name, value in values.items():
    hparams[name] = check[name](value)
    if name in ('beta1', 'momentum') and hparams[name] == 0:
      del hparams[name]
      slots = slots if keeps_m else {slot: first for slot, first in slots.items() if slot != 'm'}
  optimizer = PerCoordinate(hparams, slots, formula)
  if schedule is None:
    return optimizer
  return tff.learning.optimizers.schedule_learning_rate(optimizer, schedules.in_graph(schedule))


def _scalar(value: Any, dtype: tf.DType) -> tf.Tensor:
  """Converts a number or scalar tensor to a tensor of `dtype`, with a single rounding."""
  if isinstance(value, numbers.Real):
    return tf.constant(float(value), dtype)
  return tf.cast(value, dtype)


def _computed_in(dtype: Any) -> tf.DType:
  """Returns the dtype of a weight's step, at least float32; raises TypeError for integers."""
  dtype = tf.as_dtype(dtype)
  if not dtype.is_floating:
    raise TypeError(f'weights must be floating-point tensors, found {dtype.name}: cast them.')
  return tf.float32 if dtype.size < 4 else dtype
