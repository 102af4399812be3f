"""How a TFF computation runs: as one TensorFlow graph, or on TFF's workers, here or elsewhere."""

from tff_adaptive.execution.connections import WorkerError
from tff_adaptive.execution.context import (
  AsyncGraphContext,
  GraphContext,
  graph_context,
  set_graph_context,
)
from tff_adaptive.execution.crew import WorkersLost
from tff_adaptive.execution.devices import hide_gpus
from tff_adaptive.execution.remote import RemoteContext, set_remote_context
from tff_adaptive.execution.workers import reap_workers, remember_workers, set_native_context

__all__ = [
  'AsyncGraphContext',
  'GraphContext',
  'RemoteContext',
  'WorkerError',
  'WorkersLost',
  'graph_context',
  'hide_gpus',
  'reap_workers',
  'remember_workers',
  'set_graph_context',
  'set_native_context',
  'set_remote_context',
]
