"""What a run asks of an execution context whose workers load what clients have."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class WorkerContext(Protocol):
  """A context that takes references for clients' values: `engine.RayContext` is one."""

  def accepts(self, source: Any) -> bool:
    """Whether workers can have a copy of a source; see `_utils.client_references`."""

  def each(
    self, function: Callable[[Any], Any], arguments: Sequence[Any], seconds: float = 0.0
  ) -> list[Any]:
    """Has workers call a function with each of the arguments.

    RuntimeError if none is left, or none ends a call, which may take some seconds, for too long.
    """

  def on_each_node(self, function: Callable[[Any], Any], argument: Any) -> list[tuple[str, Any]]:
    """Has a worker of each node call a function; pairs of the node's name and the result."""


def current() -> WorkerContext | None:
  """The context that TFF computations run in, if it is such a one."""
  tff = sys.modules.get('tensorflow_federated')  # A process that is not TFF's need not load it.
  if tff is None:
    return None
  context = tff.framework.get_context_stack().current
  return context if isinstance(context, WorkerContext) else None
