from .cluster.errors import WorkerError as WorkerError, WorkersLost as WorkersLost
from .cluster.ray_context import RayContext as RayContext, set_ray_context as set_ray_context
from .cluster.subrounds import (
  SubroundContext as SubroundContext,
  set_subround_context as set_subround_context,
)
from .graph.context import (
  GraphContext as GraphContext,
  graph_context as graph_context,
  set_graph_context as set_graph_context,
)
from .native import (
  reap_workers as reap_workers,
  remember_workers as remember_workers,
  set_native_context as set_native_context,
)
