"""References to clients' values: a small key that is sent in place of the value.

A cohort of references holds no examples and no states. The process that uses a value loads it from
the source; another process has its own copy of the source.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable


class Source(Protocol):
  """Loads values by key. It can be pickled, and a copy in another process loads the same values."""

  def load(self, keys: Sequence[Any]) -> list[Any]:
    """Returns the values of keys, in their order. A key's value never changes."""


@runtime_checkable
class StoringSource(Source, Protocol):
  """A source that also stores new values."""

  def store(self, keys: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Stores new values of the keys' clients; returns a small, picklable receipt for each.

    Storing the same values again, when a call is retried, changes nothing.
    """


@runtime_checkable
class WorkerContext(Protocol):
  """A TFF context that accepts references, such as `engine.RayContext`."""

  def accepts(self, source: Any) -> bool:
    """Whether workers can have a copy of a source."""

  def each(
    self, function: Callable[[Any], Any], arguments: Sequence[Any], seconds: float = 0.0
  ) -> list[Any]:
    """Calls a function in workers with each argument.

    Raises RuntimeError if no worker is left, or if no call ends for too long. A call may take
    `seconds`.
    """

  def on_each_node(self, function: Callable[[Any], Any], argument: Any) -> list[tuple[str, Any]]:
    """Calls a function in a worker of each node; returns pairs (name of the node, result)."""


@dataclasses.dataclass(frozen=True, eq=False)
class ClientReference:
  """A reference to a client's value, in a client-placed argument.

  Attributes:
    source: The source of the value.
    key: The source's key of the value, hashable, and small because it is sent to workers.
    num_examples: The number of examples, if the value is a dataset.
  """

  source: Source
  key: Any
  num_examples: int = 1


def is_referenced(values: Sequence[Any]) -> bool:
  """Whether clients' values are references, all to one source."""
  return len(values) > 0 and all(
    isinstance(v, ClientReference) and v.source is values[0].source for v in values
  )


def resolve(values: Sequence[Any]) -> Sequence[Any]:
  """Returns clients' values; references are loaded here."""
  if not is_referenced(values):
    return values
  return values[0].source.load([v.key for v in values])


def client_of(key: Any) -> Any:
  """Returns the client of a key: its id, if the key is a tuple that begins with one."""
  return key[0] if isinstance(key, tuple) and key else key


def workers() -> WorkerContext | None:
  """Returns the current TFF context if its workers can load clients' values, else None."""
  tff = sys.modules.get('tensorflow_federated')  # A process that is not TFF's need not load it.
  if tff is None:
    return None
  context = tff.framework.get_context_stack().current
  return context if isinstance(context, WorkerContext) else None
