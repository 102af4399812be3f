"""The kinds of entries of the registry, as plain data; no TensorFlow."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tff_adaptive._utils import suggestions, user_code, validation

Value = float | int | bool | str


def _nothing() -> Mapping[str, Any]:
  return MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class Hyperparameter:
  """A number of an algorithm, a server optimizer or a schedule.

  Attributes:
    name: Its name, as a flag and as an argument.
    kind: float, int, bool or str.
    default: Its value where none is given; None: it has none, which `help` explains.
    help: What it is, in one sentence without its default and its owners.
    check: The check of a value from `_utils.validation`; None: a float is finite, an int is at
      least 0.
    hint: What to give instead of a refused value.
    choices: The values allowed, where they are few.
    default_with: Server optimizer -> default with it, where that differs.
  """

  name: str
  kind: type
  default: Value | None
  help: str
  check: validation.Check | None = None
  hint: str = ''
  choices: tuple[Value, ...] = ()
  default_with: Mapping[str, Value] = dataclasses.field(default_factory=_nothing, hash=False)

  def checked(self, value: Any, name: str = '') -> Any:
    """Returns a value that is allowed; a whole number stands for a float too.

    Args:
      value: The value.
      name: What the user calls it, such as '--mu'; default: its name.

    Raises:
      TypeError: If it is of another kind.
      ValueError: If it is out of its range.
    """
    name = name or self.name
    hint = self.hint or f'its default is {self.default}'
    if self.kind is bool:
      if not isinstance(value, bool):
        raise TypeError(f'{name} must be true or false, found {value!r}.')
      return value
    if self.kind is int:
      validation.whole_number(name, value, 0, hint)
    if self.choices and value not in self.choices:
      allowed = ' or '.join(map(str, self.choices))
      raise ValueError(f'{name} must be {allowed}, found {value!r}: {hint}.')
    if self.kind is str:
      return value
    check = self.check or (validation.whole if self.kind is int else validation.real)
    found = check(name, value, hint)
    return float(found) if self.kind is float and type(found) is int else found


@dataclasses.dataclass(frozen=True)
class Counts:
  """What a client receives, sends and computes in a round; see `tff_adaptive.costs`.

  Attributes:
    down: How many times the n parameters it receives: 1 is the model alone.
    up: How many times it sends them: 1 is the update alone.
    gradients: Gradients of a batch's loss in a local step.
    full_gradients: Gradients over all its examples in a round.
  """

  down: float = 1
  up: float = 1
  gradients: int = 1
  full_gradients: int = 0


class _WithHyperparameters:
  """What all entries share: values of the hyperparameters by name."""

  name: str
  hyperparameters: tuple[Hyperparameter, ...]

  def default(self, name: str, server_optimizer: str = 'sgd') -> Any:
    """Returns the default of a hyperparameter; KeyError if there is none of that name."""
    h = {h.name: h for h in self.hyperparameters}[name]
    return h.default_with.get(server_optimizer, h.default)

  def values(self, given: Mapping[str, Any], server_optimizer: str = 'sgd') -> dict[str, Any]:
    """Returns all hyperparameters by name: what is given, checked, and defaults for the rest.

    Args:
      given: Name -> value; None stands for the default.
      server_optimizer: The server optimizer's name, for the defaults.

    Raises:
      TypeError: If a value is of another kind.
      ValueError: If a name is unknown or a value is out of its range.
    """
    known = {h.name: h for h in self.hyperparameters}
    for name in given:
      if name not in known:
        raise ValueError(suggestions.unknown(f'hyperparameter of {self.name}', name, known))
    return {
      name: self.default(name, server_optimizer) if value is None else known[name].checked(value)
      for name, value in ((name, given.get(name)) for name in known)
    }


@dataclasses.dataclass(frozen=True)
class Algorithm(_WithHyperparameters):
  """A client correction, and the server optimizer where the name fixes it.

  Attributes:
    name: Its name on the command line and in `build_...`.
    title: Its name in papers and reports.
    description: One line, without a full stop.
    paper: Where it was published; '' for one of a user's own.
    correction: The `corrections.Correction` class, or 'module:class'.
    server_optimizer: The one that its name stands for; None: any, SGD with rate 1 by default.
    hyperparameters: Those of the correction.
    settings: What its name stands for besides: some of the settings client_optimizer,
      client_optimizer_option, client_optimizer_state, sam_rho, clip_norm, server_learning_rate,
      and, of a command, participation, local_steps and random_local_steps.
    assumes_sgd: What supposes that clients train with plain SGD, for messages; '' for nothing.
    is_stateful: Whether clients keep a state between the rounds they take part in.
    client_weighting: 'examples' or 'uniform': how the paper weighs clients.
    counts: What clients send as published, given the hyperparameters by name; None: what the
      correction sends, see `algorithms.counts`.
    uploads: What a client sends besides its update that moves the model; '' for nothing.
    source: The user's file that it comes from; None for one of this package.
  """

  name: str
  title: str
  description: str
  paper: str = ''
  correction: str | type = 'tff_adaptive.corrections.base:Correction'
  server_optimizer: str | None = None
  hyperparameters: tuple[Hyperparameter, ...] = ()
  settings: Mapping[str, Any] = dataclasses.field(default_factory=_nothing, hash=False)
  assumes_sgd: str = ''
  is_stateful: bool = False
  client_weighting: str = 'examples'
  counts: Callable[[Mapping[str, Any]], Counts] | None = None
  uploads: str = ''
  source: user_code.UserCode | None = None


@dataclasses.dataclass(frozen=True)
class ServerOptimizer(_WithHyperparameters):
  """An optimizer of the server, or of the clients.

  Attributes:
    name: Its name on the command line.
    title: Its name in reports.
    description: One line, without a full stop.
    build: The function (learning_rate, **hyperparameters) -> TFF optimizer, or 'module:function'.
    hyperparameters: Those besides the learning rate.
    source: The user's file that it comes from; None for one of this package.
    rate: A learning rate to begin with, where none was tuned; None: that of SGD.
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
  """An entry without a title besides its name.

  Attributes:
    name: Its name on the command line.
    description: One line, without a full stop.
    build: 'module:attribute' of what makes it.
    hyperparameters: Its options.
  """

  name: str
  description: str
  build: str
  hyperparameters: tuple[Hyperparameter, ...] = ()


@dataclasses.dataclass(frozen=True)
class Schedule(Named):
  """A schedule of a learning rate: `build` is (base_rate, **hyperparameters) -> rate by round."""


@dataclasses.dataclass(frozen=True)
class Aggregator(Named):
  """How the server combines updates: `build` is (values, cohort) -> TFF aggregation factory.

  Attributes:
    is_weighted: Whether it can weigh clients; if not, all count the same.
    is_private: Whether it adds noise for differential privacy.
    promise: What it does to all that moves the model, as in 'does not NOISE what ...'; '' where it
      promises nothing about a client.
  """

  is_weighted: bool = True
  is_private: bool = False
  promise: str = ''


def resolve(reference: Any) -> Any:
  """Returns what 'module:attribute' names; anything but a text is returned as it is."""
  if not isinstance(reference, str):
    return reference
  module, _, attribute = reference.partition(':')
  return getattr(importlib.import_module(module), attribute)


def by_name(*entries: Any) -> Mapping[str, Any]:
  """Entries as a read-only table: name -> entry."""
  return MappingProxyType({entry.name: entry for entry in entries})


def named(kind: str, name: str, table: Mapping[str, Any]) -> Any:
  """The entry of a name in a table; ValueError if there is none, which says what is meant."""
  if name not in table:
    raise ValueError(suggestions.unknown(kind, name, table))
  return table[name]
