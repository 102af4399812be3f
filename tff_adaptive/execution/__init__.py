"""How a TFF computation runs: as one TensorFlow graph, or on TFF's own worker."""

from tff_adaptive.execution.context import (
  AsyncGraphContext,
  GraphContext,
  graph_context,
  set_graph_context,
)
from tff_adaptive.execution.workers import reap_workers, remember_workers, set_native_context

__all__ = [
  'AsyncGraphContext',
  'GraphContext',
  'graph_context',
  'reap_workers',
  'remember_workers',
  'set_graph_context',
  'set_native_context',
]
