"""Schedules, which compute the learning rate of a round.

A schedule is a frozen dataclass that is called with the round t = 0, 1, 2, ... It keeps no state.
For a Python or NumPy integer it returns a Python float. For an integer tensor it returns a float32
tensor, as `tff.learning.optimizers.schedule_learning_rate` needs it. The rate is computed in
float64, so that both results agree up to the last rounding.

Every schedule has the argument `warmup_rounds` = w. In round t the rate is multiplied by
min(1, (t + 1) / w), which reaches 1 in round w - 1. After the warm-up t still counts from round 0.

TensorFlow is imported only when a schedule is called with a tensor.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from tff_adaptive._utils import hyperparameters, suggestions, validation
from tff_adaptive._utils.hyperparameters import Hyperparameter, option

# The number of rounds for which a plain Python function can be a schedule in a graph.
TABLE_ROUNDS = 100_000
_FACTOR = 'Factor by which the rate shrinks, in (0, 1]'


@dataclasses.dataclass(frozen=True)
class Schedule:
  """The base class of schedules. Subclasses override `_rate`, which is constant in this class.

  The fields that a subclass declares with `option` are its hyperparameters.

  Attributes:
    name: The name on the command line.
    summary: One line, without a full stop.
    base_rate: The rate of round 0 without warm-up; finite and >= 0.
    warmup_rounds: w, the number of rounds of linear warm-up; 0 for none.
  """

  name: ClassVar[str] = 'constant'
  summary: ClassVar[str] = 'the base rate in every round'
  base_rate: float
  warmup_rounds: int = option(0, 'Rounds of linear warm-up')

  def __post_init__(self) -> None:
    validation.field(self, 'base_rate', validation.at_least_zero, 'give a rate such as 0.1')
    for h in self.hyperparameters():
      object.__setattr__(self, h.name, h.checked(getattr(self, h.name)))

  @classmethod
  def hyperparameters(cls) -> tuple[Hyperparameter, ...]:
    """Returns the hyperparameters, those that all schedules have last."""
    declared = hyperparameters.declared_by(cls)
    # Fields of a base class come first; lists show what is particular first.
    return tuple(sorted(declared, key=lambda h: h.name == 'warmup_rounds'))

  def __call__(self, round_number: Any) -> Any:
    """Returns the learning rate of a round.

    Args:
      round_number: t, counted from 0: an int, or an integer tensor of any shape.

    Returns:
      A float, or a float32 tensor of the shape of `round_number`.

    Raises:
      ValueError: If `round_number` is a negative int.
    """
    # With w = 1 the factor min(1, (t + 1) / w) is 1 in all rounds.
    warmup = max(self.warmup_rounds, 1)
    if isinstance(round_number, numbers.Integral):
      validation.whole_number('round_number', round_number, 0, 'rounds count from 0')
      t = float(round_number)
      return float(self._rate(t) * min(1.0, (t + 1) / warmup))
    import tensorflow as tf  # Only here: see the module's docstring.

    t = tf.cast(round_number, tf.float64)
    return tf.cast(self._rate(t) * tf.minimum(tf.ones_like(t), (t + 1) / warmup), tf.float32)

  def _rate(self, t: Any) -> Any:
    """Returns the rate without warm-up, for a float or a float64 tensor t."""
    # 0 * t gives the result the type and the shape of t.
    return self.base_rate + 0 * t


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
  """The rate is base_rate in every round after the warm-up."""


@dataclasses.dataclass(frozen=True)
class InvSqrt(Schedule):
  """The rate in round t is base_rate / sqrt(t + 1).

  This is INVSQRT of "Adaptive Federated Optimization" (https://arxiv.org/abs/2003.00295), which
  writes eta_l / sqrt(t) and counts rounds from 1.
  """

  name: ClassVar[str] = 'inv_sqrt'
  summary: ClassVar[str] = 'base rate / sqrt(t + 1)'

  def _rate(self, t: Any) -> Any:
    return self.base_rate / (t + 1) ** 0.5


@dataclasses.dataclass(frozen=True)
class ExpDecay(Schedule):
  """The rate in round t is base_rate * factor ** floor(t / every), a step function.

  This is EXPDECAY of "Adaptive Federated Optimization" (https://arxiv.org/abs/2003.00295). The
  defaults are the paper's: a factor of 0.1 every 500 rounds.

  Attributes:
    factor: The factor by which each step multiplies the rate, in (0, 1].
    every: The number of rounds in a step, >= 1.
  """

  name: ClassVar[str] = 'exp_decay'
  summary: ClassVar[str] = 'base rate x 0.1 every 500 rounds, in steps'
  factor: float = option(0.1, _FACTOR, validation.in_half_open_unit_interval)
  every: int = option(500, 'Rounds of one step', validation.count)

  def _rate(self, t: Any) -> Any:
    return self.base_rate * self.factor ** (t // self.every)


@dataclasses.dataclass(frozen=True)
class RoundDecay(Schedule):
  """The rate in round t is base_rate * factor ** t.

  The default factor, 0.998, is that of "AdaBest" (https://arxiv.org/abs/2204.13170).

  Attributes:
    factor: The factor by which each round multiplies the rate, in (0, 1].
  """

  name: ClassVar[str] = 'round_decay'
  summary: ClassVar[str] = 'base rate x 0.998 each round'
  factor: float = option(0.998, _FACTOR, validation.in_half_open_unit_interval)

  def _rate(self, t: Any) -> Any:
    return self.base_rate * self.factor**t


@dataclasses.dataclass(frozen=True)
class Diminishing(Schedule):
  """The rate in round t is base_rate * gamma / (gamma + E * t), with gamma = max(8 * kappa, E).

  In Theorem 1 of Li et al., ICLR 2020 (https://arxiv.org/abs/1907.02189) local step k, counted over
  all rounds, has the rate 2 / (alpha (gamma + k)). The objective is alpha-strongly convex and
  beta-smooth, and kappa = beta / alpha. Here all steps of a round have the rate of its first step,
  k = E t. With base_rate = 2 / (alpha gamma) this is the theorem's rate.

  Attributes:
    kappa: The problem's condition number, >= 1. With 1 the rate falls fastest.
    local_steps: E, the number of local steps in a round, >= 1.
  """

  name: ClassVar[str] = 'diminishing'
  summary: ClassVar[str] = 'base rate x gamma / (gamma + E t), E the option local_steps'
  kappa: float = option(1.0, "The problem's condition number, >= 1", validation.at_least_one)
  local_steps: int = option(1, 'E, the local steps of a round', validation.count)

  @property
  def gamma(self) -> float:
    """Returns gamma = max(8 * kappa, local_steps)."""
    return max(8.0 * self.kappa, float(self.local_steps))

  def _rate(self, t: Any) -> Any:
    # 2 / (alpha (gamma + E t)) for base_rate = 2 / (alpha gamma), the rate of round 0.
    return self.base_rate * self.gamma / (self.gamma + self.local_steps * t)


KINDS: Mapping[str, type[Schedule]] = {
  kind.name: kind for kind in (Constant, InvSqrt, ExpDecay, RoundDecay, Diminishing)
}


def in_graph(schedule: float | Callable[[Any], Any]) -> Callable[[Any], Any]:
  """Returns a function from a round, an int32 scalar tensor, to its rate, a float32 scalar tensor.

  Args:
    schedule: A rate, or a function of the round, counted from 0. The function is a schedule of this
      module, a Python function of an int, or a function of an integer tensor (which must compare by
      `tf.equal`, because == compares identities in a TFF computation). It is called with the
      int 0 first. If it then returns a number, it becomes a table of its first `TABLE_ROUNDS` rates
      in the graph, and later rounds fail. Otherwise it gets a tensor.
  """
  function: Any = schedule
  if not callable(schedule):
    function = Constant(schedule)
  rates: list[Any] = []  # The table, which is made once and used in all graphs.

  def rate(t: Any) -> Any:
    import tensorflow as tf  # Only here: see the module's docstring.

    if isinstance(function, Schedule):
      return tf.cast(function(t), tf.float32)
    if not rates:
      # An int comes first: compared with ==, a symbolic tensor is unequal to every number.
      try:
        wants_tensor = tf.is_tensor(function(0))
      except Exception as error:  # With a tensor, 1 / 0 would not fail: the rate would be infinite.
        wants_tensor = not isinstance(error, ArithmeticError)
      if wants_tensor:
        return tf.cast(function(t), tf.float32)
      rates.append(np.array(_table(function), np.float32))
    # Without the check `tf.gather` would return 0 for a later round on a GPU, and nothing would
    # move.
    known = tf.debugging.assert_less(
      t, len(rates[0]), f'a schedule that is a Python function ends after {TABLE_ROUNDS} rounds'
    )
    with tf.control_dependencies([known]):
      return tf.gather(rates[0], t)

  return rate


def _table(schedule: Callable[[Any], Any]) -> list[float]:
  """Returns the first `TABLE_ROUNDS` rates of a schedule that is a plain Python function."""
  rates: list[float] = []
  t = 0
  try:
    for t in range(TABLE_ROUNDS + 1):  # In its last round an optimizer asks for the next rate.
      rates.append(float(schedule(t)))
      if not 0 <= rates[-1] < math.inf:
        raise ValueError(f'the rate must be finite and at least 0, found {rates[-1]}')
  except Exception as error:
    kind = ValueError if isinstance(error, ValueError) else TypeError
    reason = ' '.join(str(error).split())[:200] or type(error).__name__
    where = f'the int t = {t}, the round counted from 0'
    raise kind(f'the schedule fails for {where}: {reason}') from error
  return rates


def build(name: str, base_rate: float, **options: Any) -> Schedule:
  """Builds the schedule with the given name.

  Args:
    name: One of `registry.SCHEDULES`.
    base_rate: The rate of round 0 without warm-up; finite and >= 0.
    **options: The schedule's hyperparameters: `warmup_rounds` for all; `factor` and `every` for
      exp_decay; `factor` for round_decay; `kappa` and `local_steps` for diminishing.

  Raises:
    TypeError: If an argument is not a number.
    ValueError: If the name or an option is unknown, or a value is out of its range.
  """
  if name not in KINDS:
    raise ValueError(suggestions.unknown('schedule', name, KINDS))
  kind = KINDS[name]
  known = {h.name: h for h in kind.hyperparameters()}
  values = hyperparameters.values(known, options, name, lambda option: known[option].default)
  return kind(base_rate, **values)
