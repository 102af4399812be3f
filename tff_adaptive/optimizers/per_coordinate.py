"""Makes a `tff.learning.optimizers.Optimizer` of a formula for one weight tensor.

The formulas themselves stand in files that the registry reads without TFF; this file needs TFF.
"""

import collections
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import schedules
from tff_adaptive._utils import validation
from tff_adaptive._utils.weight_groups import NamedWeight
from tff_adaptive.optimizers.base import RATE, At, Formula, Rate, Stepped

State: TypeAlias = collections.OrderedDict[str, Any]

_STEP = 'step'
_RATE_HINT = 'give a rate such as 0.1, or 0 to keep the model as it is'


class PerCoordinate(tff.learning.optimizers.Optimizer):
  """A TFF optimizer that applies a formula to each weight tensor.

  The weights may be any structure that `tf.nest` knows, of floating-point tensors. For 16-bit
  weights the state and the step are float32, because with 8 bits of precision a moving average
  would lose most of what is added to it. If a weight's gradient is None, the weight and its state
  do not change.

  The state is an `OrderedDict`: the hyperparameters, then `step` (int32, the number of steps done),
  then the slots in the structure of the weights.

  Args:
    hparams: The values of the hyperparameters by name.
    slots: The initial values, by name, of the tensors that the formula updates, such as m and v.
    formula: A function from an `At` to the new weight x_{t+1} and the new slots.
    of_weights: The functions of the weights in order, where they are not all the same.
  """

  def __init__(
    self,
    hparams: Mapping[str, float],
    slots: Mapping[str, float],
    formula: Callable[[At], Stepped],
    of_weights: Sequence[Formula] | None = None,
  ) -> None:
    self._hparams = collections.OrderedDict(hparams)
    self._slots = slots
    self._formula = formula
    self._of_weights = of_weights

  def for_weights(self, weights: Sequence[NamedWeight]) -> 'PerCoordinate':
    """Returns the optimizer for a model with these weights; see `Formula.for_weights`."""
    if not isinstance(self._formula, Formula):
      return self
    formulas = tuple(self._formula.for_weights(weights))
    self._check(formulas, len(weights))
    if all(formula is self._formula for formula in formulas):
      return self
    return PerCoordinate(self._hparams, self._slots, self._formula, formulas)

  def _check(self, formulas: Sequence[Any], count: int) -> None:
    """Raises TypeError or ValueError unless these can be the formulas of the weights."""
    name = type(self._formula).__name__
    if not all(isinstance(formula, Formula) for formula in formulas):
      raise TypeError(f'{name}.for_weights must return instances of optimizers.Formula')
    if len(formulas) != count:
      raise ValueError(f'{name}.for_weights returned {len(formulas)} formulas for {count} weights')
    for formula in formulas:
      if dict(formula.slots()) != dict(self._slots):
        raise ValueError(f'{name}.for_weights: all formulas must have the slots of {name}')

  def is_by_entry(self, i: int) -> bool:
    """Returns whether the weight of this number is stepped by entry although others are not."""
    return self._of_weights is not None and self._of_weights[i].is_by_entry

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

    # Each tensor is stepped by itself, whatever the structure of the weights.
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
      formula = self._formula
      if self._of_weights is not None:
        formula = self._of_weights[i]
      new_weight, new_slots = formula(at)
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


def build(formula: Formula, learning_rate: Rate) -> tff.learning.optimizers.Optimizer:
  """Builds an optimizer, with a schedule if the learning rate is a function of the round."""
  schedule = None
  if callable(learning_rate):
    schedule = learning_rate
    learning_rate = 0.0  # Replaced by the schedule's before each step.
  rate = float(validation.at_least_zero(RATE, learning_rate, _RATE_HINT))
  optimizer = PerCoordinate({RATE: rate, **formula.hparams()}, formula.slots(), formula)
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
  if dtype.size < 4:  # Bytes.
    return tf.float32
  return dtype
