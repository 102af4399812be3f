"""References to clients' values (datasets, say), which are sent in place of the values.

A process that uses a value loads it by its key, from its own copy of the source.
"""

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


class Source(Protocol):
  """The interface of picklable objects that load values by key, the same ones in each process."""

  def load(self, keys: Sequence[Any]) -> list[Any]:
    """Returns the values of keys, in the keys' order. The value of a key never changes."""


@runtime_checkable
class WorkerContext(Protocol):
  """A TFF context that accepts references, such as `engine.RayContext`."""

  def accepts(self, source: Any) -> bool:
    """Returns whether workers can have a copy of a source."""


@dataclasses.dataclass(frozen=True, eq=False)
class ClientReference:
  """A reference to a client's value, which replaces the value in an argument placed at the clients.

  Attributes:
    source: The source that loads the value.
    key: The value's key in the source. It is hashable, and small because it is sent to workers.
    num_examples: The number of examples if the value is a dataset, else 1.
  """

  source: Source
  key: Any
  num_examples: int = 1


def is_referenced(values: Sequence[Any]) -> bool:
  """Returns whether clients' values are references, all to one source."""
  return len(values) > 0 and all(
    isinstance(v, ClientReference) and v.source is values[0].source for v in values
  )


def resolve(values: Sequence[Any]) -> Sequence[Any]:
  """Returns clients' values, which are loaded if `values` are references to one source."""
  if not is_referenced(values):
    return values
  return values[0].source.load([v.key for v in values])


def client_of(key: Any) -> Any:
  """Returns the client's id in a key: the first item if the key is a tuple, else the key."""
  if isinstance(key, tuple) and key:
    return key[0]
  return key


def workers() -> WorkerContext | None:
  """Returns the current TFF context if it has workers that load clients' values, else None."""
  tff = sys.modules.get('tensorflow_federated')  # A process that is not TFF's need not load it.
  if tff is None:
    return None
  context = tff.framework.get_context_stack().current
  if isinstance(context, WorkerContext):
    return context
  return None
