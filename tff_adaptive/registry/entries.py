"""The types of the registry's entries: plain data, which needs no TensorFlow."""

import dataclasses
import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tff_adaptive._utils import hyperparameters, suggestions, user_code
from tff_adaptive._utils.hyperparameters import Counts, Hyperparameter


class WithHyperparameters:
  """The base class of entries, which have hyperparameters."""

  name: str
  hyperparameters: tuple[Hyperparameter, ...]

  def default(self, name: str, server_optimizer: 'str | ServerOptimizer' = 'sgd') -> Any:
    """Returns a hyperparameter's default with a server optimizer; raises KeyError if unknown."""
    h = {h.name: h for h in self.hyperparameters}[name]
    if not isinstance(server_optimizer, str):
      optimizer = server_optimizer
      server_optimizer = optimizer.name
      # A user's optimizer stands in no table of defaults: its step is like that of one that does.
      if optimizer.source is not None:
        server_optimizer = 'sgd'
        if optimizer.has_momentum:
          server_optimizer = 'sgdm'
    return h.default_with.get(server_optimizer, h.default)

  def _plain_name(self, name: str) -> str:
    """Returns the name of a hyperparameter that may be given with its part's name, sam.rho say."""
    part, _, own_name = name.rpartition('.')
    names = [h.name for h in self.hyperparameters]
    # A name is written with its part's only where two parts of a chain have the same.
    if name not in names and part in self.name.split('+'):
      return own_name
    return name

  def values(
    self, given: Mapping[str, Any], server_optimizer: 'str | ServerOptimizer' = 'sgd'
  ) -> dict[str, Any]:
    """Returns all hyperparameters by name: the given values, checked, and defaults for the rest.

    Args:
      given: Values by name; None stands for the default.
      server_optimizer: The server optimizer's name or entry, on which some defaults depend.

    Raises:
      TypeError: If a value has the wrong type.
      ValueError: If a name is unknown or a value is out of its range.
    """
    known = {h.name: h for h in self.hyperparameters}
    given = {self._plain_name(name): value for name, value in given.items()}

    def default(name: str) -> Any:
      return self.default(name, server_optimizer)

    return hyperparameters.values(known, given, self.name, default)


@dataclasses.dataclass(frozen=True)
class Algorithm(WithHyperparameters):
  """A client correction, with a server optimizer if the algorithm's name fixes one.

  Attributes:
    name: Its name on the command line and in `build_...`.
    title: Its name in papers and reports.
    description: One line, without a full stop.
    paper: The publication; '' for a user's own algorithm.
    correction: The subclass of `corrections.Correction`, its name as 'module:class', or the
      `registry.described.Parts` of a chain.
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
    pools_clients: Whether one client has the examples of all, for baselines.
    source: The user's file with the algorithm; None for an algorithm of this package.
    is_chain: Whether it was made for a chain's name, or a part's, that is in no table.
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
  pools_clients: bool = False
  source: user_code.UserCode | None = None
  is_chain: bool = False

  @property
  def takes_options(self) -> bool:
    """Whether its hyperparameters are options and no flags: a user's own algorithm, or a chain."""
    return self.source is not None or self.is_chain


@dataclasses.dataclass(frozen=True)
class ServerOptimizer(WithHyperparameters):
  """An optimizer for the server or the clients.

  Attributes:
    name: Its name on the command line.
    title: Its name in reports.
    description: One line, without a full stop.
    build: The function (learning_rate, **hyperparameters) -> TFF optimizer, or 'module:function'.
    hyperparameters: The hyperparameters besides the learning rate.
    source: The user's file with the optimizer; None for an optimizer of this package.
    rate: The default rate if none was tuned. None means 1 for servers, the task's rate for clients.
    has_momentum: Whether its step is a mean over rounds. AdaBest, whose server step is one already,
      then has another default of beta.
  """

  name: str
  title: str
  description: str
  build: str | Callable[..., Any]
  hyperparameters: tuple[Hyperparameter, ...] = ()
  source: user_code.UserCode | None = None
  rate: float | None = None
  has_momentum: bool = False

  @property
  def takes_options(self) -> bool:
    """Whether its hyperparameters are options and no flags: a user's own optimizer."""
    return self.source is not None


@dataclasses.dataclass(frozen=True)
class Named(WithHyperparameters):
  """The base class of entries that have no separate title.

  Attributes:
    name: Its name on the command line.
    description: One line, without a full stop.
    build: The function that builds it, or its name as 'module:attribute'.
    hyperparameters: The options.
  """

  name: str
  description: str
  build: str | Callable[..., Any]
  hyperparameters: tuple[Hyperparameter, ...] = ()


@dataclasses.dataclass(frozen=True)
class Schedule(Named):
  """A schedule of a learning rate. `build` maps (base_rate, **hyperparameters) to a schedule."""


# The promise of an aggregator that hides the updates of single clients.
SUM_IN_SECRET = 'sum in secret'


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

  @property
  def hides_clients(self) -> bool:
    """Whether what it is for would be lost if each client's numbers were written down."""
    return self.is_private or self.promise == SUM_IN_SECRET


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
