"""Schedules: round number -> learning rate.

A schedule is a frozen dataclass that is called with the round t = 0, 1, 2, ... It keeps no state.
A Python or NumPy integer gives a Python float; an integer tensor gives a float32 scalar tensor
(computed in float64, so that both agree to the last rounding), which is what
`tff.learning.optimizers.schedule_learning_rate` wants.

Every schedule takes `warmup_rounds` = w: its rate is multiplied by min(1, (t + 1) / w), which
reaches 1 in round w - 1. The schedule's own clock runs from round 0 all the same.

TensorFlow is imported only when a schedule is called with a tensor.
"""

import dataclasses
import numbers
from typing import Any

from tff_adaptive import checks, names


@dataclasses.dataclass(frozen=True)
class Schedule:
  """What all schedules share; the rate itself is a subclass's `_rate`.

  Attributes:
    base_rate: The rate of round 0, but for warm-up; finite and >= 0.
    warmup_rounds: w, the number of rounds of linear warm-up; 0 for none.
  """

  base_rate: float
  warmup_rounds: int = 0

  def __post_init__(self) -> None:
    checks.field(self, 'base_rate', checks.at_least_zero, 'give a rate such as 0.1')
    checks.whole_number('warmup_rounds', self.warmup_rounds, 0, 'give 0 for no warm-up')

  def __call__(self, round_number: Any) -> Any:
    """Returns the learning rate of a round.

    Args:
      round_number: t, counted from 0: an int, or an integer tensor of any shape.

    Returns:
      A float, or a float32 tensor of the shape of `round_number`.

    Raises:
      ValueError: If an int is negative.
    """
    warmup = max(self.warmup_rounds, 1)
    if isinstance(round_number, numbers.Integral):
      checks.whole_number('round_number', round_number, 0, 'rounds count from 0')
      t = float(round_number)
      return float(self._rate(t) * min(1.0, (t + 1) / warmup))
    import tensorflow as tf  # Only here: see the module's docstring.

    t = tf.cast(round_number, tf.float64)
    return tf.cast(self._rate(t) * tf.minimum(tf.ones_like(t), (t + 1) / warmup), tf.float32)

  def _rate(self, t: Any) -> Any:
    """Returns the rate without warm-up, for a float or a float64 tensor t."""
    raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Constant(Schedule):
  """base_rate in every round."""

  def _rate(self, t: Any) -> Any:
    return self.base_rate + 0 * t


@dataclasses.dataclass(frozen=True)
class InvSqrt(Schedule):
  """base_rate / sqrt(t + 1).

  INVSQRT of "Adaptive Federated Optimization" (https://arxiv.org/abs/2003.00295), which writes
  eta_l / sqrt(t) and counts rounds from 1.
  """

  def _rate(self, t: Any) -> Any:
    return self.base_rate / (t + 1) ** 0.5


@dataclasses.dataclass(frozen=True)
class ExpDecay(Schedule):
  """base_rate factor^floor(t / every): a staircase.

  EXPDECAY of "Adaptive Federated Optimization" (https://arxiv.org/abs/2003.00295), where the
  factor is 0.1 every 500 rounds.

  Attributes:
    factor: In (0, 1].
    every: The number of rounds on one stair, >= 1.
  """

  factor: float = 0.1
  every: int = 500

  def __post_init__(self) -> None:
    super().__post_init__()
    _check_factor(self.factor)
    checks.whole_number('every', self.every, 1, 'give a number of rounds such as 500')

  def _rate(self, t: Any) -> Any:
    return self.base_rate * self.factor ** (t // self.every)


@dataclasses.dataclass(frozen=True)
class RoundDecay(Schedule):
  """base_rate factor^t.

  The decay of "AdaBest" (https://arxiv.org/abs/2204.13170), where the factor is 0.998.

  Attributes:
    factor: In (0, 1].
  """

  factor: float = 0.998

  def __post_init__(self) -> None:
    super().__post_init__()
    _check_factor(self.factor)

  def _rate(self, t: Any) -> Any:
    return self.base_rate * self.factor**t


@dataclasses.dataclass(frozen=True)
class Diminishing(Schedule):
  """base_rate gamma / (gamma + E t), gamma = max(8 kappa, E).

  Theorem 1 of the lecture on federated optimization (after Li et al., ICLR 2020,
  https://arxiv.org/abs/1907.02189): for an alpha-strongly convex, beta-smooth f, kappa =
  beta / alpha, and E local steps a round, it takes s_k = 2 / (alpha (gamma + k)) in local step k,
  counted over all rounds. A round begins at k = E t, and here keeps the rate it begins with. The
  lecture's rate has base_rate = 2 / (alpha gamma): `Diminishing.from_problem` gives it.

  Attributes:
    kappa: The problem's condition number, >= 1; 1 makes the rate fall fastest.
    local_steps: E, >= 1.
  """

  kappa: float = 1.0
  local_steps: int = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.above_zero('kappa', self.kappa, _KAPPA_MEND)
    if self.kappa < 1:
      raise ValueError(f'kappa must be at least 1, found {self.kappa}: {_KAPPA_MEND}.')
    checks.whole_number('local_steps', self.local_steps, 1, 'give the local steps of one round')

  @property
  def gamma(self) -> float:
    """max(8 kappa, E)."""
    return max(8.0 * self.kappa, float(self.local_steps))

  @classmethod
  def from_problem(
    cls, alpha: float, beta: float, local_steps: int = 1, warmup_rounds: int = 0
  ) -> 'Diminishing':
    """Returns the lecture's rate for a problem.

    Args:
      alpha: The constant of strong convexity (least curvature), > 0.
      beta: The constant of smoothness (largest curvature), >= alpha.
      local_steps: E, the local steps of a round, >= 1.
      warmup_rounds: As for every schedule; the lecture has none.

    Returns:
      The schedule with rate 2 / (alpha (gamma + E t)) in round t.

    Raises:
      ValueError: If an argument is out of its range.
    """
    checks.above_zero('alpha', alpha, 'give the least curvature of the problem')
    checks.above_zero('beta', beta, 'give the largest curvature of the problem')
    shape = cls(1.0, kappa=beta / alpha, local_steps=local_steps, warmup_rounds=warmup_rounds)
    return dataclasses.replace(shape, base_rate=2.0 / (alpha * shape.gamma))

  def _rate(self, t: Any) -> Any:
    return self.base_rate * self.gamma / (self.gamma + self.local_steps * t)


_KAPPA_MEND = 'give the ratio of the largest to the least curvature'

_BY_NAME: dict[str, type[Schedule]] = {
  'constant': Constant,
  'inv_sqrt': InvSqrt,
  'exp_decay': ExpDecay,
  'round_decay': RoundDecay,
  'diminishing': Diminishing,
}


def build(name: str, base_rate: float, **options: Any) -> Schedule:
  """Returns the schedule of a name.

  Args:
    name: One of `names.SCHEDULES`.
    base_rate: The rate of round 0, but for warm-up; finite and >= 0.
    **options: `warmup_rounds` for all; `factor` and `every` for exp_decay; `factor` for
      round_decay; `kappa` and `local_steps` for diminishing.

  Returns:
    The schedule.

  Raises:
    TypeError: If an argument is no number.
    ValueError: If the name or an option is unknown, or a value is out of its range.
  """
  if name not in _BY_NAME:
    raise ValueError(names.unknown('schedule', name, _BY_NAME))
  kind = _BY_NAME[name]
  known = [field.name for field in dataclasses.fields(kind) if field.name != 'base_rate']
  for option in options:
    if option not in known:
      raise ValueError(names.unknown(f'option of the schedule {name}', option, known))
  return kind(base_rate, **options)


def _check_factor(factor: float) -> None:
  mend = 'give the factor by which the rate shrinks, such as 0.998'
  checks.above_zero('factor', factor, mend)
  if factor > 1:
    raise ValueError(f'factor must be in (0, 1], found {factor}: {mend}.')
