"""The base class of optimizers, which describe themselves and are a formula for one weight tensor.

Nothing here imports TFF, and TensorFlow only when a formula is computed, so that commands can list
and explain the optimizers quickly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from tff_adaptive._utils import hyperparameters
from tff_adaptive._utils.hyperparameters import option as option
from tff_adaptive._utils.lazy_tensorflow import tf

if TYPE_CHECKING:
  import tensorflow_federated as tff

  from tff_adaptive._utils.weight_groups import NamedWeight

  Tensors: TypeAlias = dict[str, tf.Tensor]
  Stepped: TypeAlias = tuple[tf.Tensor, Tensors]  # The new weight and slots.
else:  # Their use in annotations must not import TensorFlow.
  Tensors = dict
  Stepped = tuple

Rate: TypeAlias = float | Callable[[Any], Any]

RATE = 'learning_rate'  # As `tff.learning.optimizers.LEARNING_RATE_KEY`.
# Without momentum there is no such hyperparameter in the state, which then is as small as SGD's.
_DECAYS_OF_M = ('beta1', 'momentum')


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


class Formula:
  """An optimizer of servers or clients, as a formula for one weight tensor.

  A subclass is a frozen dataclass. The fields declared with `optimizers.option` are its
  hyperparameters besides the learning rate, and the following class attributes describe it;
  nothing else does. The registry lists every subclass with a `name` in a file of this package.

  Attributes:
    name: Its name on the command line.
    title: Its name in papers and reports; by default the same as `name`.
    summary: One line, without a full stop; by default the first line of the docstring.
    paper: The publication.
    used_by: Whose optimizer it can be: 'server', 'clients'.
    server_rate: The server's rate if none was tuned; None for 1.
    client_rate: The clients' rate if none was tuned; None for the task's.
    has_momentum: Whether its step is a mean over rounds. AdaBest, whose server step is one already,
      then has another default of beta.
    is_by_entry: Whether a matrix is stepped entry by entry although others are not. A rule for the
      slots of matrices, such as FedMuon's, then does not hold.
    in_state: The names of the hyperparameters that stand in the state, where `set_hparams` changes
      them; None for all floats that `step` gets.
  """

  name: ClassVar[str] = ''
  title: ClassVar[str] = ''
  summary: ClassVar[str] = ''
  paper: ClassVar[str] = ''
  used_by: ClassVar[tuple[str, ...]] = ('server',)
  server_rate: ClassVar[float | None] = None
  client_rate: ClassVar[float | None] = None
  has_momentum: ClassVar[bool] = False
  is_by_entry: ClassVar[bool] = False
  in_state: ClassVar[tuple[str, ...] | None] = None

  def __post_init__(self) -> None:
    for declared in hyperparameters.declared_by(type(self)):
      value = getattr(self, declared.name)
      # None is a value only where it is the default.
      if value is not None or declared.default is not None:
        # The dataclass is frozen, so a plain assignment would be refused.
        object.__setattr__(self, declared.name, declared.checked(value))

  def hparams(self) -> dict[str, float]:
    """Returns the hyperparameters in the state; momentum of 0 is left out."""
    names = self.in_state
    if names is None:
      declared = hyperparameters.declared_by(type(self))
      names = tuple(h.name for h in declared if h.kind is float)
    values = {name: float(getattr(self, name)) for name in names}
    return {k: value for k, value in values.items() if value or k not in _DECAYS_OF_M}

  def slots(self) -> Mapping[str, float]:
    """Returns the first values, by name, of the tensors that `step` updates, such as m and v."""
    return {}

  def step(self, at: At) -> Stepped:
    """Returns the new weight x_{t+1} and the new slots by name."""
    raise NotImplementedError

  def for_weights(self, weights: Sequence[NamedWeight]) -> Sequence[Formula]:
    """Returns the formula of each weight, once the model is known; by default this one for all.

    Only client optimizers are asked, before the first round. All formulas must have the
    hyperparameters and slots of this one.

    Args:
      weights: The trainable weights by name and kind, in order.
    """
    return [self] * len(weights)

  def __call__(self, at: At) -> Stepped:
    """Returns `step(at)`. Unlike a bound method, the formula equals another with its values."""
    return self.step(at)

  @classmethod
  def build(cls, learning_rate: Rate, **values: Any) -> tff.learning.optimizers.Optimizer:
    """Returns the TFF optimizer with a rate, or a schedule of it, and hyperparameters by name."""
    return build(cls(**values), learning_rate)


def build(formula: Formula, learning_rate: Rate) -> tff.learning.optimizers.Optimizer:
  """Returns the TFF optimizer of a formula.

  Args:
    formula: The formula with its hyperparameters.
    learning_rate: eta >= 0, or a function of the round, counted from 0.
  """
  from tff_adaptive.optimizers import per_coordinate  # Needs TFF; see the module's docstring.

  return per_coordinate.build(formula, learning_rate)
