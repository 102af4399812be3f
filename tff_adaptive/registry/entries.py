"""The types of the registry's entries: plain data, which needs no TensorFlow."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tff_adaptive._utils import suggestions, user_code, validation, value_text

Value = float | int | bool | str


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
  """A hyperparameter of an algorithm, an optimizer or a schedule.

  Attributes:
    name: Its name, as a flag and as an argument.
    kind: The type of its values: float, int, bool or str.
    default: The default value. None means that it has no fixed default; `help` then explains it.
    help: One sentence that explains it; it names neither the default nor the algorithms.
    check: A function of `_utils.validation`. None checks that a float is finite, an int at least 0.
    hint: The advice in the error for a refused value, such as 'give 0 for none'.
    choices: The allowed values; () allows all values that pass `check`.
    default_with: Other defaults with some server optimizers, by the optimizer's name.
  """

  name: str
  kind: type
  default: Value | None
  help: str
  check: validation.Check | None = None
  hint: str = ''
  choices: tuple[Value, ...] = ()
  default_with: Mapping[str, Value] = dataclasses.field(default_factory=dict, hash=False)

  def checked(self, value: Any, name: str = '') -> Any:
    """Checks a value and returns it; an integer is converted if a float is expected.

    Args:
      name: The name in the error message, such as '--mu'. By default it is the hyperparameter's.

    Raises:
      TypeError: If the value has the wrong type.
      ValueError: If the value is out of its range.
    """
    name = name or self.name
    hint = self.hint or f'its default is {self.default}'
    if self.kind is bool:
      if not isinstance(value, bool):
        raise TypeError(f'{name} must be true or false, found {value_text.in_text(value)}.')
      return value
    if self.kind is not str:
      check = self.check or (validation.whole if self.kind is int else validation.real)
      value = self.kind(check(name, value, hint))
    if self.choices and value not in self.choices:
      allowed = ' or '.join(map(str, self.choices))
      raise ValueError(f'{name} must be {allowed}, found {value_text.in_text(value)}: {hint}.')
    return value


@dataclasses.dataclass(frozen=True)
class Counts:
  """The communication and computation of a client in a round; see `tff_adaptive.costs`.

  Attributes:
    down: The data that the client receives, as a multiple of the model's size; 1 is the model.
    up: The data that the client sends, in the same unit; 1 is the update.
    gradients: Number of batch gradients that a local step computes.
    full_gradients: Number of gradients over all of the client's examples in a round.
  """

  down: float = 1
  up: float = 1
  gradients: int = 1
  full_gradients: int = 0


class _WithHyperparameters:
  """The base class of entries, which have hyperparameters."""

  name: str
  hyperparameters: tuple[Hyperparameter, ...]

  def default(self, name: str, server_optimizer: str = 'sgd') -> Any:
    """Returns a hyperparameter's default with a server optimizer; raises KeyError if unknown."""
    h = {h.name: h for h in self.hyperparameters}[name]
    return h.default_with.get(server_optimizer, h.default)

  def values(self, given: Mapping[str, Any], server_optimizer: str = 'sgd') -> dict[str, Any]:
    """Returns all hyperparameters by name: the given values, checked, and defaults for the rest.

    Args:
      given: Values by name; None stands for the default.
      server_optimizer: The server optimizer's name, on which some defaults depend.

    Raises:
      TypeError: If a value has the wrong type.
      ValueError: If a name is unknown or a value is out of its range.
    """
    known = {h.name: h for h in self.hyperparameters}
    for name in given:
      if name not in known:
        raise ValueError(suggestions.unknown(f'option of {self.name}', name, known))
    return {
      name: self.default(name, server_optimizer) if value is None else known[name].checked(value)
      for name, value in ((name, given.get(name)) for name in known)
    }


@dataclasses.dataclass(frozen=True)
class Algorithm(_WithHyperparameters):
  """A client correction, with a server optimizer if the algorithm's name fixes one.

  Attributes:
    name: Its name on the command line and in `build_...`.
    title: Its name in papers and reports.
    description: One line, without a full stop.
    paper: The publication; '' for a user's own algorithm.
    correction: The subclass of `corrections.Correction`, or its name as 'module:class'.
    server_optimizer: The optimizer that its name stands for. None accepts any optimizer; if none is
      given, the server uses SGD with rate 1.
    hyperparameters: The hyperparameters of the correction.
    settings: Further settings that its name stands for: some of client_optimizer,
      client_optimizer_option, client_optimizer_state, sam_rho, clip_norm and server_learning_rate,
      and for commands also participation, local_steps and random_local_steps.
    assumes_sgd: The reason why clients must train with plain SGD, for messages; '' for none.
    is_stateful: Whether clients keep a state between the rounds they take part in.
    client_weighting: 'examples' or 'uniform': the default weights of the clients.
    counts: A function from the hyperparameters by name to `Counts` with the published `down` and
      `up`. If None, `algorithms.counts` finds these by tracing the correction's methods.
    uploads: What a client sends besides its update that moves the model, for messages; '' for none.
    source: The user's file with the algorithm; None for an algorithm of this package.
  """

  name: str
  title: str
  description: str
  paper: str = ''
  correction: str | type = 'tff_adaptive.corrections.base:Correction'
  server_optimizer: str | None = None
  hyperparameters: tuple[Hyperparameter, ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
  assumes_sgd: str = ''
  is_stateful: bool = False
  client_weighting: str = 'examples'
  counts: Callable[[Mapping[str, Any]], Counts] | None = None
  uploads: str = ''
  source: user_code.UserCode | None = None


@dataclasses.dataclass(frozen=True)
class ServerOptimizer(_WithHyperparameters):
  """An optimizer for the server or the clients.

  Attributes:
    name: Its name on the command line.
    title: Its name in reports.
    description: One line, without a full stop.
    build: The function (learning_rate, **hyperparameters) -> TFF optimizer, or 'module:function'.
    hyperparameters: The hyperparameters besides the learning rate.
    source: The user's file with the optimizer; None for an optimizer of this package.
    rate: The default rate if none was tuned. None means 1 for servers, the task's rate for clients.
  """

  name: str
  title: str
  description: str
  build: str | Callable[..., Any]
  hyperparameters: tuple[Hyperparameter, ...] = ()
  source: user_code.UserCode | None = None
  rate: float | None = None


@dataclasses.dataclass(frozen=True)
class Named(_WithHyperparameters):
  """The base class of entries that have no separate title.

  Attributes:
    name: Its name on the command line.
    description: One line, without a full stop.
    build: The function that builds it, as 'module:attribute'.
    hyperparameters: The options.
  """

  name: str
  description: str
  build: str
  hyperparameters: tuple[Hyperparameter, ...] = ()


@dataclasses.dataclass(frozen=True)
class Schedule(Named):
  """A schedule of a learning rate. `build` maps (base_rate, **hyperparameters) to a schedule."""


@dataclasses.dataclass(frozen=True)
class Aggregator(Named):
  """A way to combine updates. `build` maps (values, cohort) to a TFF aggregation factory.

  Attributes:
    is_weighted: Whether clients can have weights. If not, all count the same.
    is_private: Whether it adds noise for differential privacy.
    promise: A verb for the error of `aggregation.table.check`, such as 'clip': what the aggregator
      must do to everything that a client sends. '' if it makes no such promise.
  """

  is_weighted: bool = True
  is_private: bool = False
  promise: str = ''


def resolve(reference: Any) -> Any:
  """Returns the object that 'module:attribute' names; returns any other object as it is."""
  if not isinstance(reference, str):
    return reference
  module, _, attribute = reference.partition(':')
  return getattr(importlib.import_module(module), attribute)


def by_name(*entries: Any) -> Mapping[str, Any]:
  """Returns entries as a read-only mapping from name to entry."""
  return MappingProxyType({entry.name: entry for entry in entries})


def named(kind: str, name: str, table: Mapping[str, Any]) -> Any:
  """Returns the entry of a name; raises a ValueError with similar names if there is none."""
  if name not in table:
    raise ValueError(suggestions.unknown(kind, name, table))
  return table[name]
