"""Clients' values by reference: a key that travels instead of them, and who has them.

A cohort of references holds no examples and no states. Whoever uses a value asks its source for
it; in another process that is a copy of the source, opened there.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable


class Source(Protocol):
  """Has values by key. It can be pickled, and a copy in another process gives the same values."""

  def load(self, keys: Sequence[Any]) -> list[Any]:
    """Returns the values of keys, in their order; a key's value never changes."""


@runtime_checkable
class StoringSource(Source, Protocol):
  """A source that also keeps the values that take the place of those it gave."""

  def store(self, keys: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Keeps new values of the keys' clients; returns for each a receipt, small and picklable.

    Storing the same again, for a call that is retried, changes nothing.
    """


@runtime_checkable
class WorkerContext(Protocol):
  """A context of TFF that takes references for clients' values: `engine.RayContext` is one."""

  def accepts(self, source: Any) -> bool:
    """Whether workers can have a copy of a source."""

  def each(
    self, function: Callable[[Any], Any], arguments: Sequence[Any], seconds: float = 0.0
  ) -> list[Any]:
    """Has workers call a function with each of the arguments.

    RuntimeError if none is left, or none ends a call, which may take some seconds, for too long.
    """

  def on_each_node(self, function: Callable[[Any], Any], argument: Any) -> list[tuple[str, Any]]:
    """Has a worker of each node call a function; pairs of the node's name and the result."""


@dataclasses.dataclass(frozen=True, eq=False)
class ClientReference:
  """Stands for a client's value in a client-placed argument.

  Attributes:
    source: Who has it.
    key: What the source knows it by: hashable, and small, as it travels.
    num_examples: What the client costs, if the value is a dataset.
  """

  source: Source
  key: Any
  num_examples: int = 1


def is_referenced(values: Sequence[Any]) -> bool:
  """Whether clients' values are references, all of one source."""
  return len(values) > 0 and all(
    isinstance(v, ClientReference) and v.source is values[0].source for v in values
  )


def resolve(values: Sequence[Any]) -> Sequence[Any]:
  """Returns clients' values, those of references loaded here."""
  if not is_referenced(values):
    return values
  return values[0].source.load([v.key for v in values])


def client_of(key: Any) -> Any:
  """The client that a key is of: its id, where a key is a tuple that begins with one."""
  return key[0] if isinstance(key, tuple) and key else key


def workers() -> WorkerContext | None:
  """The context that TFF computations run in, if its workers load what clients have."""
  tff = sys.modules.get('tensorflow_federated')  # A process that is not TFF's need not load it.
  if tff is None:
    return None
  context = tff.framework.get_context_stack().current
  return context if isinstance(context, WorkerContext) else None
